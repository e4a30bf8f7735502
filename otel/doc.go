// Package valkeysyncotel has OpenTelemetry metrics and traces of valkeysync's locks: how long they are waited for and
// held, by how many, what was lost and why.
//
//	telemetry, err := valkeysyncotel.New() // of the global providers
//	locks, err := valkeysync.New(client, valkeysync.WithTracer(telemetry))
//	telemetry.Observe(locks)
//
// Waits and holds are measured as the library tells of them (see [valkeysync.Tracer]); everything else is what
// [valkeysync.Client.Stats] has counted, read when metrics are collected.
//
// # Metrics
//
// Their names follow OpenTelemetry's conventions; there are none for locks, so they are below valkeysync's own name.
//
//	valkeysync.wait.duration  histogram, s       from asking to having, or to giving up: kind, mode, grant or error.type
//	valkeysync.wait.active    up-down counter    waits under way, tries left out: kind, mode
//	valkeysync.hold.duration  histogram, s       from having to the end of the unlock, or the loss: kind, mode, error.type
//	valkeysync.hold.active    up-down counter    holds: kind, mode
//	valkeysync.losses         counter            leases lost: loss.cause
//	valkeysync.handovers      counter            acquisitions that another's unlock gave: grant
//	valkeysync.renewals       counter            confirmed renewals
//	valkeysync.renewal.errors counter            renewals that failed and were repeated
//	valkeysync.wakeups        counter            looks at a lock that is waited for: wakeup.cause
//	valkeysync.reconnects     counter            connections for messages that broke
//	valkeysync.client.count   up-down counter    Clients that are observed: notifications
//
// # Attributes
//
// Before each stands "valkeysync.", but for error.type, which is OpenTelemetry's.
//
//	kind           mutex, rwmutex, semaphore, quorum_mutex
//	mode           of an rwmutex: read, write
//	name           with WithName alone
//	grant          how it was had: reply, message, local (see valkeysync.Grant)
//	error.type     of a wait: timeout, canceled (its context's end), locked (a try found it taken), closed, mismatch,
//	               not_replicated, no_majority, the server's own word (NOPERM, OOM …), _OTHER;
//	               of a hold: the cause of its loss, or unconfirmed (the server did not answer the unlock in time)
//	loss.cause     expired, taken, deleted, unreachable, max_hold, closed (see valkeysync.Cause)
//	wakeup.cause   message, event, timer, gap
//	notifications  true, false: whether the server's keyspace notifications arrive
//
// The key is not among them. Every value of an attribute is a time series of its own in each process, for as long as it
// runs, and programs have keys such as "order:81624", without end. Where there are few, or a few kinds, [WithName] makes
// an attribute of them.
//
// # Spans
//
// "wait …" and "hold …", with the name or the kind, for acquisitions whose context has a span: both are its children, and
// what is done with the lock's context is the hold's. They have the attributes above and valkeysync.key, .token and
// .permits. Lock and its like have no context, and a lock alone is no reason for a trace: they have metrics only.
package valkeysyncotel
