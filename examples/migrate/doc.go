// Package migrate is docs/migrating.md as code that compiles: for each lock that a program may have today, what it
// does with it (…Before), and the same here (…After), line by line. Its tests check that each piece of code in that
// document stands here, run both halves on a real server, and let a fleet of which one half is changed already count
// under one lock.
//
// Copy from the After functions; the Before ones are what you have.
package migrate

import "context"

// job is what is done under the lock. It has to stop when its context ends.
type job func(ctx context.Context) error
