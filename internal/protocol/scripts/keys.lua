-- keys: stands before every script: its keys, and what stands in them.
--
-- KEYS[1] lock    string: the exclusive holder, or the marker of shared holds
-- KEYS[2] shared  sorted set: one member a shared hold, score = end of its lease (ms)
-- KEYS[3] queue   sorted set: one entry a waiting attempt, score = place
-- KEYS[4] fence   string: the last number given out
-- tag: hash tag of shard channels ('{orders}'); '' where ordinary channels are used. It stands before, as of script.go.
--
-- entry:  <ref> <kind> <mode> <weight> <lease ms> <first lease ms> <grace ms> <name>
-- ref:    <client id>#<attempt>
-- hold:   vs1 <number> <since ms> <entry>      the lock's value, or a member of shared
-- marker: vs1 shared <kind>                    the lock's value while shared holds live
-- kind:   m mutex, w rwmutex, s<size> semaphore, o<owner> mutex of an owner; mode: x exclusive, r reader, p permit
local lock, shared, queue, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call = redis.call
local held  -- the lock's value, once it was read; false: free
local freed -- the lock was given up by this script and its key still stands
