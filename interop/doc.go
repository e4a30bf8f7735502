// Package interop shows that other programs which lock with the plain recipe (SET key value NX PX, and a script
// that compares and deletes) and this library exclude each other on the same keys. It has tests only.
package interop
