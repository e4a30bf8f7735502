package model

// The configurations. Those that keep all rules must have no violation; each of the others leaves rules out
// and must have the one that it wants. Time is coarse: what a tick is does not matter to the protocol, only
// which of lease, first lease, grace and latest time are longer than which.

// safety: two clients on a mutex; waiters check once a tick.
func safety() Config {
	return Config{
		Clients: 2, Kind: Mutex, Size: 1, Weight: [maxClients]int8{1, 1, 1}, Rounds: [maxClients]int8{1, 1, 1},
		Names: [maxClients]int8{1, 1, 1}, Lease: 2, First: 1,
	}
}

// detection: safety with crash detection. A's subscription is at fault; B waits, and cuts.
func detection() Config {
	c := safety()
	c.OnlyA = true
	c.Lease, c.First, c.Grace = 4, 2, 2
	return c
}

// liveness: timers, and everything prompt after at most two ticks of faults. The lease is long against the
// grace, so that whoever has to wait for a lease is late.
func liveness() Config {
	c := safety()
	c.Names = [maxClients]int8{4, 4, 4}
	c.Lease, c.First, c.Grace, c.Latest = 20, 4, 4, 2
	c.Timed, c.Ticks, c.Serve, c.Clean = true, 2, 10, 10
	return c
}

// three: liveness with a queue. What a dead client holds may stay for its lease.
func three() Config {
	c := liveness()
	c.Clients, c.Ticks, c.Clean = 3, 1, 0
	return c
}

// shared: readers and writers, or permits of a semaphore of size 2.
func shared(kind Kind, weight ...int8) Config {
	c := safety()
	c.Clients, c.Kind, c.Size = len(weight), kind, 2
	copy(c.Weight[:], weight)
	return c
}

// Configs are all configurations.
func Configs() []Config {
	var all []Config
	add := func(name string, c Config, f func(*Config)) {
		c.Name = name
		if f != nil {
			f(&c)
		}
		all = append(all, c)
	}
	big := func(name string, c Config, f func(*Config)) {
		c.Big = true
		add(name, c, f)
	}

	s := safety()
	add("safety: no faults", s, nil)
	big("safety: two attempts of A", s, func(c *Config) { c.Names[0] = 2 })
	add("safety: a lost request", s, func(c *Config) { c.Faults.Lost, c.Latest = 1, 1 })
	add("safety: a broken connection", s, func(c *Config) { c.Faults.Break, c.HalfOld = 1, true })
	add("safety: a replica", s, func(c *Config) { c.Faults.Demote = 1 })
	add("safety: one gives up, a broken connection", s, func(c *Config) { c.Faults.GiveUp, c.Faults.Break = 1, 1 })
	add("safety: renewals, a crash", s, func(c *Config) { c.Lease, c.First, c.Faults.Renew, c.Faults.Crash = 3, 2, 2, 1 })
	add("safety: a plain holder", s, func(c *Config) { c.Faults.Foreign = 1 })
	big("safety: a plain holder, one gives up", s, func(c *Config) { c.Faults.Foreign, c.Faults.GiveUp = 1, 1 })
	big("safety: a lost request, two attempts of A", s, func(c *Config) { c.Faults.Lost, c.Latest, c.Names[0] = 1, 1, 2 })
	big("safety: a lost re-queue", s, func(c *Config) { c.Faults.Lost, c.Latest, c.Names[0], c.Rounds[0] = 1, 1, 2, 2 })
	big("safety: a lost request, renewals", s, func(c *Config) { c.Faults.Lost, c.Latest, c.Faults.Renew, c.Lease, c.First = 1, 1, 1, 3, 2 })
	big("safety: a lost request, a broken connection", s, func(c *Config) { c.Faults.Lost, c.Latest, c.Faults.Break = 1, 1, 1 })
	big("safety: two lost requests", s, func(c *Config) { c.Faults.Lost, c.Latest = 2, 1 })
	big("safety: a broken connection, two attempts of A", s, func(c *Config) { c.Faults.Break, c.HalfOld, c.Names[0] = 1, true, 2 })
	big("safety: three clients", s, func(c *Config) { c.Clients = 3 })

	d := detection()
	add("detection: a broken connection, a renewal", d, func(c *Config) { c.Faults.Break, c.Faults.Renew = 1, 1 })
	add("detection: a broken connection, a beat", d, func(c *Config) { c.Faults.Break, c.Faults.Beat = 1, 1 })
	big("detection: a broken connection, two beats", d, func(c *Config) { c.Faults.Break, c.Faults.Beat = 1, 2 })
	big("detection: a broken connection, a beat, a renewal", d, func(c *Config) { c.Faults.Break, c.Faults.Beat, c.Faults.Renew = 1, 1, 1 })
	big("detection: two broken connections, a beat", d, func(c *Config) { c.Faults.Break, c.Faults.Beat, c.HalfOld = 2, 1, true })
	big("detection: an old SUBSCRIBE runs late", d, func(c *Config) { c.Faults.Break, c.Faults.Beat, c.Ghost = 1, 1, true })
	big("detection: an old SUBSCRIBE of any connection runs late", d, func(c *Config) { c.Faults.Break, c.Faults.Beat, c.Faults.Ghost = 2, 1, 1 })
	big("detection: a broken connection is replaced, a beat", d, func(c *Config) { c.Faults.Break, c.Faults.Beat, c.Faults.Replace = 1, 1, 1 })
	add("detection: the server closes a connection, and has told the holder", d, func(c *Config) { c.Faults.Close, c.Told = 1, true })
	big("detection: the server closes two connections, and has told the holder", d, func(c *Config) { c.Faults.Close, c.Told = 2, true })
	big("detection: the server closes a connection, and has told the holder, a beat", d, func(c *Config) { c.Faults.Close, c.Faults.Beat, c.Told = 1, 1, true })
	big("detection: a connection is replaced and one is closed, and the holder was told", d, func(c *Config) { c.Faults.Close, c.Faults.Replace, c.Told = 1, 1, true })
	add("detection: a replica, and the holder was told", d, func(c *Config) { c.Faults.Demote, c.Told = 1, true })
	big("detection: a replica, a broken connection, a beat", d, func(c *Config) { c.Faults.Demote, c.Faults.Break, c.Faults.Beat = 1, 1, 1 })
	big("detection: a lost request, a broken connection", d, func(c *Config) { c.Faults.Break, c.Faults.Lost, c.Latest = 1, 1, 1 })

	add("readers: a writer, two readers", shared(RWMutex, 2, 1, 1), func(c *Config) { c.Lease = 1 })
	big("readers: a writer, two readers, longer", shared(RWMutex, 2, 1, 1), nil)
	big("readers: two writers, a reader", shared(RWMutex, 2, 2, 1), nil)
	big("readers: a writer, two readers, a lost request", shared(RWMutex, 2, 1, 1), func(c *Config) { c.Faults.Lost, c.Latest = 1, 1 })
	big("permits: 1, 1 and 2 of 2", shared(Semaphore, 1, 1, 2), func(c *Config) { c.Lease = 1 })
	add("permits: a lost re-queue", shared(Semaphore, 1, 1), func(c *Config) { c.Faults.Lost, c.Latest, c.Rounds[0], c.Names[0], c.Rounds[1] = 1, 3, 2, 2, 0 })
	add("permits: 1 and 2 of 2, a lost request", shared(Semaphore, 1, 2), func(c *Config) { c.Faults.Lost, c.Latest = 1, 1 })
	big("permits: 1, 1 and 2 of 2, a broken connection", shared(Semaphore, 1, 1, 2), func(c *Config) { c.Faults.Break = 1 })

	l, l3 := liveness(), three()
	add("liveness: a lost request", l, func(c *Config) { c.Faults.Lost = 1 })
	add("liveness: a broken connection, a beat", l, func(c *Config) { c.Faults.Break, c.Faults.Beat = 1, 1 })
	add("liveness: one gives up, a lost request", l, func(c *Config) { c.Faults.GiveUp, c.Faults.Lost, c.Names, c.Latest = 1, 1, [maxClients]int8{2, 2}, 1 })
	add("liveness: a crash", l, func(c *Config) { c.Faults.Crash, c.Clean = 1, 0 })
	add("liveness: a replica", l, func(c *Config) { c.Faults.Demote, c.Deaf = 1, true })
	big("liveness: a lease lost", l, func(c *Config) {
		c.Faults.Break, c.Grace, c.First, c.Ticks, c.Names = 1, 2, 2, 3, [maxClients]int8{2, 2}
	})
	add("liveness: overlapping readers keep it", l, func(c *Config) { c.Sticky, c.Grace, c.Serve, c.Faults.Break = true, 0, 21, 1 })
	add("liveness: three, two crashes", l3, func(c *Config) { c.Faults.Crash, c.Serve = 2, 13 })
	add("liveness: three, two crash and nobody sees it", l3, func(c *Config) { c.Faults.Crash, c.Serve, c.HalfOpen, c.Ticks = 2, 30, true, 1 })
	big("liveness: three, one gives up, a crash", l3, func(c *Config) { c.Faults.GiveUp, c.Faults.Crash = 1, 1 })
	add("liveness: three, one gives up", l3, func(c *Config) { c.Faults.GiveUp, c.Clean = 1, 10 })
	add("liveness: three, a plain holder", l3, func(c *Config) { c.Faults.Foreign, c.Grace, c.Serve = 1, 0, 25 })
	big("liveness: a lost re-queue", l, func(c *Config) { c.Faults.Lost, c.Rounds[0] = 1, 2 })
	big("liveness: a lost request, a broken connection", l, func(c *Config) { c.Faults.Lost, c.Faults.Break, c.Ticks = 1, 1, 1 })
	add("liveness: readers", shared(RWMutex, 2, 1, 1), func(c *Config) { asLive(c); c.Faults.GiveUp = 1 })
	add("liveness: permits, a lost request", shared(Semaphore, 1, 2), func(c *Config) { asLive(c); c.Faults.Lost = 1; c.Rounds[0] = 2 })

	return append(all, without()...)
}

func asLive(c *Config) {
	l := liveness()
	c.Names, c.Lease, c.First, c.Grace, c.Latest = l.Names, l.Lease, l.First, l.Grace, l.Latest
	c.Timed, c.Ticks, c.Serve, c.Clean = true, 1, 10, 10
}

// without are the configurations that leave rules out.
func without() []Config {
	var all []Config
	add := func(rules Rule, want Violation, c Config, f func(*Config)) {
		c.Name, c.Without, c.Want = "without "+rules.String(), rules, want
		if f != nil {
			f(&c)
		}
		all = append(all, c)
	}
	s, d, l, l3 := safety(), detection(), liveness(), three()
	add(Remaining, TooMany, s, func(c *Config) { c.Lease, c.First, c.Names[0], c.Rounds[0] = 3, 1, 2, 2 })
	add(LeaseInMessage, TooMany, s, func(c *Config) { c.Lease, c.First, c.Names[0] = 3, 1, 2 })
	add(SamePair, TooMany, s, func(c *Config) { c.Lease, c.First, c.Names[0], c.Rounds[0] = 2, 2, 2, 2 })
	add(SendAlone, TooMany, s, func(c *Config) { c.Lease, c.First, c.Names[0], c.Rounds[0] = 2, 1, 2, 2 })
	add(CountFirst, TooMany, s, func(c *Config) { c.Faults.Demote, c.Names[0], c.Rounds[0] = 1, 2, 2 })
	add(NewName, TooMany, s, func(c *Config) { c.Faults.Lost, c.Faults.Break, c.HalfOld = 1, 1, true })
	add(NumberAtGrant, TokenFell, shared(RWMutex, 2, 2, 1), nil)
	add(SameAnswer, Twice, s, func(c *Config) { c.Faults.Lost, c.Latest = 1, 1 })
	add(TellFront, ServedLate, l3, func(c *Config) { c.Faults.GiveUp, c.Faults.Crash = 1, 1 })
	add(TellAgain, NeverIn, l, func(c *Config) { c.Sticky, c.Grace, c.Serve, c.Faults.Break = true, 0, 21, 1 })
	add(LeaveLost, LeftTaken, l, func(c *Config) { c.Grace, c.First, c.Names = 1, 1, [maxClients]int8{1, 1} })
	add(EndingAlone, LeftTaken, l, func(c *Config) { c.Faults.GiveUp, c.Faults.Lost, c.Names, c.Latest = 1, 1, [maxClients]int8{2, 2}, 1 })
	add(LatestTime, LeftTaken, l, func(c *Config) { c.Faults.GiveUp, c.Faults.Lost, c.Names, c.Latest = 1, 1, [maxClients]int8{2, 2}, 1 })
	add(LeaveAgain, LeftTaken, l, func(c *Config) { c.Faults.GiveUp, c.Faults.Lost, c.Names, c.Latest = 1, 1, [maxClients]int8{2, 2}, 1 })
	add(OneSession, TooMany, d, func(c *Config) { c.Faults.Break, c.Faults.Beat = 1, 1 })
	add(BeatSession|OwnChannel, TooMany, d, func(c *Config) { c.Faults.Break, c.Faults.Beat = 1, 1 })
	add(OwnChannel, NotCovered, d, func(c *Config) { c.Faults.Break, c.Faults.Beat, c.Ghost = 1, 1, true })
	add(Unbroken, NotCovered, d, func(c *Config) { c.Faults.Break, c.Faults.Beat, c.Faults.Replace = 1, 1, 1 })
	add(BeatCounted, TooMany, d, func(c *Config) { c.Faults.Break, c.Faults.Beat = 1, 1 })
	add(ToldThen, TooMany, d, func(c *Config) { c.Faults.Close, c.Told = 1, true })
	add(ToldCounted, TooMany, d, func(c *Config) { c.Faults.Demote, c.Told = 1, true })
	add(OneProof, TooMany, d, func(c *Config) { c.Faults.Break, c.Faults.Renew = 1, 1 })
	add(ProofOnArrival, TokenFell, d, func(c *Config) { c.Faults.Break = 1 })
	add(OwnGrace, TooMany, d, func(c *Config) { c.Faults.Break, c.Mixed = 1, true })
	add(Cut, ServedLate, l, func(c *Config) { c.Faults.Crash, c.Clean = 1, 0 })
	add(Prune, ServedLate, l3, func(c *Config) { c.Faults.Crash, c.Serve = 2, 13 })
	add(PlaceTimer, NeverIn, l3, func(c *Config) { c.Faults.Crash, c.Serve = 2, 16 })
	add(FrontTimer, NeverIn, l3, func(c *Config) { c.Faults.Foreign, c.Grace, c.Serve = 1, 0, 25 })
	add(GapLook, ServedLate, l, func(c *Config) { c.Faults.Break, c.Grace = 1, 0 })
	add(ShortFirst, ServedLate, l3, func(c *Config) { c.Faults.Crash, c.Serve, c.HalfOpen = 2, 30, true })
	return all
}
