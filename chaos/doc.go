// Package chaos is the fault suite: worlds in which processes take locks from one server, or from a Quorum of several, while processes,
// server and network fail by a random schedule, and a judge who looks at everything that they did.
//
// A world is made by its seed alone ([PlanFor]): the server, the workers and their options, and the schedule of faults.
// The same seed makes the same schedule; what the operating system makes of it differs from run to run.
//
//	plan.go     what a seed stands for
//	quorum.go   the same for worlds with several servers and a Quorum
//	world.go    one world, from the start of its server to the verdict
//	fault.go    how each fault is done and undone
//	crew.go     the workers' processes, seen from the parent
//	worker.go   a worker process
//	work.go     what one goroutine of a worker does
//	form.go     in which forms it locks: with a context, without, Do, LockAll
//	wire.go     what workers and parent say to each other
//	record.go   what happened, as the parent knows it
//	judge.go    what must hold
//	history.go  the same as histories for a linearizability checker
package chaos
