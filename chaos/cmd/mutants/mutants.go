package main

// mutant is one way to break the library on purpose.
type mutant struct {
	name  string
	why   string // what it takes away
	with  string // worlds in which that may show
	tests string // the library's tests that find it, as a pattern of their names
	rule  string // the rule of the model (docs/model.md) that it breaks, if there is one
	edits []edit
}

type edit struct {
	file, old, new string // old must be there exactly once
}

const scripts = "internal/protocol/scripts/"

// mutants each leave out one rule of the protocol or of the clients. Where the code has changed, the test
// beside this file says which no longer fits.
var mutants = []mutant{
	{"as-it-is", "nothing is broken: what is found here is found without cause",
		"", "", "", nil},
	{"attempt-check", "a grant for an earlier attempt is taken for one of this",
		"", "TestAnAttemptThatWasDroppedJoinsAnewUnderAnotherName", "", []edit{
			{"gate.go", "if a.entry.Attempt == m.Attempt {\n\t\t\ta.message", "if true {\n\t\t\ta.message"}}},
	{"deadline-from-reply", "the lease is counted from the reply, not from the sending",
		"long,net-fade,grace-off", "TestAReplyCountsFromTheSendingOfItsRequest", "", []edit{
			{"attempt.go", "until := sent.at.Add(r.Remaining - drift(lease))", "until := time.Now().Add(r.Remaining - drift(lease))"},
			{"hold.go", "until := sent.at.Add(remaining - drift(h.term))", "until := time.Now().Add(remaining - drift(h.term))"}}},
	{"no-look-after-gap", "waiters do not look again once the subscription was rebuilt",
		"gentle", "TestAfterAGapEverybodyLooksAgain", "GapLook", []edit{
			{"gate.go", "\t\ta.look()\n\t}\n\tg.verifyLocked()", "\t\t_ = a\n\t}\n\tg.verifyLocked()"}}},
	{"grant-the-dead", "the lock is given to the next in the queue, alive or not",
		"worker-kill,grace-off", "TestNoGrantIsToldThatIsNotWritten|TestScriptsAndModelAgreeStepByStep", "", []edit{
			{scripts + "grant.lua", "elseif alive(e) then\n    e.number", "else\n    e.number"}}},
	{"message-before-write", "the grant is told before it is decided and written",
		"out-of-memory", "TestNoGrantIsToldThatIsNotWritten", "CountFirst", []edit{
			{scripts + "grant.lua", "elseif alive(e) then\n    e.number = hold(e, e.first)\n    served[#served + 1] = e",
				"else\n    local before = tonumber(call('GET', fence) or 0) or 0\n    tell('grant', e, int(math.max(before + 1, tonumber(now_us))), e.first, 0)\n    if alive(e) then\n      hold(e, e.first)\n    end"}}},
	{"full-lease-by-message", "a hold that a message tells is taken for one with the full lease",
		"long,net-fade,grace-off", "TestAMessageIsTimedByTheLeaseThatItNames", "LeaseInMessage", []edit{
			{"attempt.go", "until := proof.Add(m.Lease - drift(m.Lease))", "until := proof.Add(a.entry.Lease - drift(a.entry.Lease))"}}},
	{"no-leave-after-loss", "the server keeps what a Client has taken for lost",
		"long,net-fade", "TestALostHoldIsFollowedByLeave", "LeaveLost", []edit{
			{"hold.go", "\t})\n\th.forget()\n\tg.settle()", "\t})\n\tg.settle()"}}},
	{"renewal-creates", "a renewal sets the key anew where it is gone",
		"", "TestARenewalNeverTakesTheLockAgain", "", []edit{
			{scripts + "renew.lua", "local value = owned(ARGV[1], mine)\n", "local value = owned(ARGV[1], mine)\nif not value and mine.mode == 'x' and not held then\n  call('SET', lock, ARGV[1], 'PX', ARGV[2])\n  value = ARGV[1]\nend\n"}}},
	{"renewal-steals", "a renewal does not ask whose the lock is",
		"long,mutex", "TestALateUnlockDoesNotOpenTheNextHoldersLock", "", []edit{
			{scripts + "prelude.lua", "return held == value and value or nil", "return held"}}},
	{"cut-without-hearing", "a waiter that was not heard itself a moment ago cuts leases",
		"gentle,grace-on", "TestAWaiterThatWasNotHeardItselfCutsNoLease", "", []edit{
			{scripts + "grant.lua", "e.grace > 0 and heard >= 2 * e.grace and not alive(e)", "e.grace > 0 and not alive(e)"}}},
	{"beats-over-sessions", "beats count over a new subscription before a renewal does",
		"long,rights,grace-on", "TestABeatDoesNotCountAConnectionThatCameAfterAGap|TestABeatCountsNobodyButTheConnectionThatHears", "OneSession", []edit{
			{"hold.go", "beat != nil && beat.session == c.proof.session && beat.at.After(alive)", "beat != nil && beat.at.After(alive)"}}},
	{"no-proof-of-life", "the holder does not end a hold that a waiter may have cut",
		"long,net-refuse,grace-on", "TestDeadHolderIsReplacedWithinTheGrace|TestABeatCountsNobodyButTheConnectionThatHears", "", []edit{
			{"hold.go", "return earlier(c.until, alive.Add(h.grace-drift(h.grace)))", "return c.until"}}},
	{"no-timers", "waiters look only when they are told to",
		"worker-kill", "TestAtTheFrontAWaiterLooksWhenTheHoldersLeaseIsOver", "FrontTimer", []edit{
			{"attempt.go", "a.checkAt = time.Now().Add(wait)", "a.checkAt = time.Now().Add(time.Hour)"}}},
	{"no-loss", "the end of the lease is not noticed",
		"long,net-fade", "TestTheContextEndsBeforeTheServerGivesTheLockAway", "", []edit{
			{"hold.go", "\t\tcause = CauseUnreachable\n\t}\n\th.lose(cause)", "\t\tcause = CauseUnreachable\n\t}\n\t_ = cause"}}},
	{"counter-without-clock", "numbers start again where the counter was lost",
		"flushall", "TestALeaseTellsOfItself", "", []edit{
			{scripts + "number.lua", "if last and (#last ~= #n or last >= n) then", "do"},
			{scripts + "number.lua", "if l >= tonumber(n) then", "if true then"}}},
	{"last-come-first", "the queue is a stack",
		"queue", "TestProcessesAreServedInTheOrderInWhichTheyQueued|TestClientsWithSeveralGoroutinesTakeTurnsAndQueueAgainWithTheirRelease", "", []edit{
			{scripts + "acquire.lua", "call('ZADD', queue, number(), e.raw)", "call('ZADD', queue, '-' .. number(), e.raw)"}}},
	{"grant-kept", "a grant that raced with the end of its wait is not given back",
		"", "TestTheEndOfTheContextComesBeforeTheLock|TestAWaitGivenUpInTheMomentOfTheGrantHandsOn", "", []edit{
			{"gate.go", "g.giveBack(w.lease)\n\t} else {", "_ = g.giveBack\n\t} else {"}}},
	{"no-farewell", "a wait that was given up is not told to the server, nor a stray grant sent back",
		"", "TestAGrantForAnAttemptThatNobodyWaitsForIsAnsweredByLeave|TestALeaverGivesItsPlaceToThoseBehind|TestAWaitGivenUpInTheMomentOfTheGrantHandsOn", "", []edit{
			{"attempt.go", "\ta.finish()\n\ta.forget()\n", "\ta.finish()\n"},
			{"client.go", "if m.Verb != protocol.Grant && m.Verb != protocol.Front {", "if m.Verb != \"\" {"}}},
	{"one-permit-more", "the semaphore counts one short",
		"semaphore", "TestSemaphoreCountsWeights", "", []edit{
			{scripts + "grant.lua", "used() + e.weight <= tonumber(string.sub(e.kind, 2))", "used() + e.weight <= 1 + tonumber(string.sub(e.kind, 2))"}}},
	{"row-by-place", "who joins behind a row of dead waits as long as behind the living",
		"worker-kill,worker-stop,long", "TestWhoJoinsBehindARowOfDeadIsServedByTheGraceNotByItsPlace", "", []edit{
			{"attempt.go", "if r.DeadFront {", "if false {"}}},
	{"writer-beside-readers", "a writer does not look for readers where their marker has gone",
		"rwmutex,long", "TestDeletedMarkerOfReadersComesBack|TestReadersAndPlainHoldersExcludeEachOther|TestForeignSetOverTheMarkerEndsTheReaders", "", []edit{
			{scripts + "write.lua", "left = longest and int(math.max(longest - now, 1))", "left = longest and 150"},
			{scripts + "write.lua", "mark(e.kind, only and ms)", "mark(e.kind, only and 150)"},
			{scripts + "acquire_free.lua", "call('EXISTS', lock, queue, shared)", "call('EXISTS', lock, queue)"},
			{scripts + "grant.lua", "return not held and not sharing()", "return not held"}}},
	{"late-requests", "a request that comes after its own leave is run",
		"lose-one", "TestARequestThatComesTooLateIsRefused", "LatestTime", []edit{
			{scripts + "acquire_free.lua", "if latest < now_ms and latest ~= '0' then", "if false then"}}},
	{"beats-to-the-own-channel", "a beat counts whoever is subscribed to the Client's channel, an older connection too",
		"long,net-refuse,grace-on", "TestABeatCountsNobodyButTheConnectionThatHears", "OwnChannel", []edit{
			{"heartbeat.go", "e.c.server.Beat(ctx, channel)", "e.c.server.Beat(ctx, e.c.server.Channel(e.c.id, e.tag))"}}},
	{"any-answer-is-a-beat", "a beat that nobody was counted for is a proof of life",
		"long,net-refuse,grace-on", "TestABeatThatNobodyIsCountedForIsNone", "BeatCounted", []edit{
			{"heartbeat.go", "\t\te.watch.rebuild()\n\t\treturn false", "\t\te.watch.rebuild()"}}},
	{"told-just-now", "what a look says to the holder is a proof of life of when it arrives",
		"long,net-fade,grace-on", "TestALookIsAProofOfLifeOfItsOwnTime", "ToldThen", []edit{
			{"heartbeat.go", "return earlier(at, now), ok", "return now, ok"}}},
	{"told-by-hearsay", "what a look says is a proof of life for whoever hears it, counted or not",
		"", "TestALookThatIsHeardByOneWhoIsNotCountedIsNoProofOfLife", "ToldCounted", []edit{
			{"gate.go", "ok && session != 0 && m.Counted", "ok && session != 0"}}},
	{"replaced-after-a-gap", "a connection goes on with the subscription of one that was closed before it",
		"long,net-refuse,grace-on", "TestABeatDoesNotCountAConnectionThatCameAfterAGap", "Unbroken", []edit{
			{"pubsub_link.go", "if err := s.drain(); err != nil {", "if err := s.drain(); false {"}}},
	{"unlock-takes-any", "an unlock without a context ends the oldest hold, whoever has its context",
		"rwmutex", "TestAnUnlockWithoutAContextLeavesWhatAContextWasGivenFor", "", []edit{
			{"handle.go", "if l = pick(loose, list); l == nil {", "if l = pick(anyone, list); l == nil {"}}},
	{"not-made-good", "an unlock that was counted for another's lost lock stays so",
		"long,net-fade", "TestAnUnlockThatCountedForALostLockIsMadeGood", "", []edit{
			{"handle.go", "ok && a != nil && a.unclear[own] > 0", "ok && a != nil && a.unclear[own] < 0"}}},
	{"permits-not-made-good", "the same of permits",
		"long,net-fade,semaphore", "TestAReleaseThatCountedForALostPermitIsMadeGood", "", []edit{
			{"semaphore.go", "s.counted(p.lease, p.took)", "_ = p"}}},
	{"owners-are-one", "the processes of an owner come in beside those of another",
		"owned", "TestAnOwnersProcessesHoldTogether", "", []edit{
			{scripts + "grant.lua", "if held and held ~= marker(e.kind) or", "if held and held ~= marker(e.kind) and not (owned_by(e.kind) and owned_by(shared_by(held))) or"}}},
	{"inner-lease-alone", "a look at a context sees the end of its own lease, and of none around it",
		"worker-stop,mutex", "TestTheContextOfSeveralLocksNoticesAnEndThatNoTimerHasToldYet", "", []edit{
			{"context.go", "for ; c != nil; c = c.outer {", "for range 1 {"}}},
	{"some-of-all", "LockAll keeps what it has when it cannot have the rest",
		"mutex", "TestLockAllIsAllOrNothing", "", []edit{
			{"several.go", "_ = s.unlock(context.WithoutCancel(held))", "_ = held"}}},
	{"untold", "OnLost is told nothing",
		"long,net-fade", "TestEachHandleIsToldOfItsOwnLoss", "", []edit{
			{"context.go", "if f := l.opts.onLost; f != nil {", "if f := l.opts.onLost; f == nil {"}}},
	{"do-hides-loss", "Do does not say that the lease was lost",
		"long,net-fade", "TestDoNeverRunsWithoutTheLock", "", []edit{
			{"handle.go", "err = errors.Join(err, end)", "_ = end"}}},
	{"quorum-token-not-spread", "a lock on several servers is told before a majority knows its token",
		"quorum", "TestQuorumTokensRiseThoughTheHolderDied", "", []edit{
			{"quorum_take.go", "\ts.eachLocked(func(p *share) bool { return p.yes && !p.marked }, s.mark)\n\treturn s.await(done, s.settled(marked)) && s.count(marked) >= s.q.need &&", "\t_ = marked\n\treturn"}}},
	{"quorum-drops-what-answered", "an attempt without a majority is undone only where it was confirmed",
		"quorum", "TestQuorumWithoutAMajorityLeavesNothing|TestQuorumRequestsThatComeLate", "", []edit{
			{"quorum_drop.go", "p.number == 0 && !p.marked && p.open == 0 && !p.unsure", "!p.yes"}}},
	{"quorum-drops-once", "an attempt is undone once, whatever of it may still be under way",
		"quorum", "TestQuorumRequestsThatComeLate", "", []edit{
			{"quorum_drop.go", "done = quiet == nil && (!p.unsure || wait <= 0)", "done = true"}}},
	{"quorum-repairs-alone", "the key is set again wherever it is gone, whether or not a majority has it",
		"quorum", "TestQuorumLosesWithAMajority", "", []edit{
			{"quorum_hold.go", " || s.count(func(p *share) bool { return p.kept == round }) < s.q.need", ""},
			{"quorum_hold.go", "s.count(func(p *share) bool { return p.no }) > len(s.parts)-s.q.need", "s.count(func(p *share) bool { return p.no && p.reply.Holder != \"\" }) > len(s.parts)-s.q.need"}}},
	{"quorum-of-one", "a hold is certain as long as one server is bound",
		"quorum", "TestQuorumIsLostWhenNoMajorityAnswers", "", []edit{
			{"quorum_stake.go", "ends[s.q.need-1]", "ends[0]"}}},
	{"quorum-turnstile-unwatched", "who waits at a turnstile does not look whether its server is there",
		"quorum", "TestQuorumGoesOnWithoutTheTurnstile", "", []edit{
			{"quorum_turnstile.go", "\t\t\tgone()\n", "\t\t\t_ = gone\n"}}},
	{"quorum-without-turnstile", "who is refused tries again at once, beside all others",
		"quorum", "TestQuorumServesACrowd", "", []edit{
			{"quorum_turnstile.go", "m.away.Load() || ctx.Err() != nil", "true"}}},
}
