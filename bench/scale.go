package main

import "time"

// scale is how long and how often things are measured.
type scale struct {
	pairs rounds // 1, 2: lock and unlock, alone
	local rounds // 3
	crowd rounds // 4, 5, 6

	handOvers int           // 7, of each contestant
	rows      []int         // 8: how many wait
	idle      time.Duration // 8
	releases  int           // 8
	readers   rounds        // 9
	held      int           // 10: locks
	watch     time.Duration // 10
	keys      int           // 11
	keyRounds int           // 11
	waiting   []int         // 12: Clients that wait
	processes []int         // 12
	grow      rounds        // 12
	crashes   int           // 13: of each contestant
	crash     time.Duration // 13: no longer than that
}

// full is for a quiet machine: about a quarter of an hour.
var full = scale{
	pairs:     rounds{50, 60 * time.Millisecond},
	local:     rounds{10, 500 * time.Millisecond},
	crowd:     rounds{7, 2 * time.Second},
	handOvers: 200,
	rows:      []int{200, 2000},
	idle:      10 * time.Second,
	releases:  50,
	readers:   rounds{5, time.Second},
	held:      10_000,
	watch:     20 * time.Second,
	keys:      100_000,
	keyRounds: 5,
	waiting:   []int{1, 4, 16, 64, 200, 600, 2000},
	processes: []int{1, 2, 4, 8, 16, 32, 64},
	grow:      rounds{1, 2 * time.Second},
	crashes:   5,
	crash:     2 * time.Minute,
}

// short shows in about a minute that everything runs. Its figures are rough.
var short = scale{
	pairs:     rounds{3, 20 * time.Millisecond},
	local:     rounds{2, 100 * time.Millisecond},
	crowd:     rounds{1, 400 * time.Millisecond},
	handOvers: 5,
	rows:      []int{50},
	idle:      time.Second,
	releases:  5,
	readers:   rounds{1, 200 * time.Millisecond},
	held:      1000,
	watch:     2 * time.Second,
	keys:      2000,
	keyRounds: 2,
	waiting:   []int{1, 8, 64},
	processes: []int{1, 4},
	grow:      rounds{1, 200 * time.Millisecond},
	crashes:   1,
	crash:     9 * time.Second,
}
