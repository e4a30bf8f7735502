// The page of `valkeysync ui` in a real browser; a module of its own, so that what steers the browser never reaches
// those who use the library.
module github.com/valkeysync/valkeysync/browsertest

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
)

require github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect

replace github.com/valkeysync/valkeysync => ../
