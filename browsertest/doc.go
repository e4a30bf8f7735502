// Package browsertest tests the page of `valkeysync ui` as a person sees it: the real program, a real server, other
// processes that lock and unlock, and a real Chromium.
//
// A browser that is missing is a failure, never a skip: `make servers` installs Chromium (Debian), or VALKEYSYNC_CHROMIUM
// names one.
package browsertest
