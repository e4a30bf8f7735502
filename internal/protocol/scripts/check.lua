-- check: a waiter looks at how things stand: after an event, a timer, a new connection.
-- Serves the queue if the lock is free, drops dead entries ahead of the caller even while it is held,
-- and repeats to the holder that someone waits. Repeatable.
--
-- ARGV[1] entry  the attempt
-- ARGV[2] echo   a word to send to the caller's channel, or '': proves that messages arrive
-- ARGV[3] heard  for how long (ms) the caller has been subscribed; '' : cut no lease
--
-- held, queued, gone: as in grant.lua. 'gone': dropped; join anew under a new attempt.
local e = parse(ARGV[1])
lapse(e.kind)
if ARGV[3] ~= '' then
  cut(tonumber(ARGV[3]))
end
local moved = false
local first = head()
while first and first ~= e.raw do
  local ahead = parse(first)
  if fits(ahead) or alive(ahead) then
    break
  end
  call('ZREM', queue, first)
  moved = true
  first = head()
end
if moved then
  show_queue()
end
grant(e.ref, moved, false)
if ARGV[2] ~= '' then
  tell('echo', e, 0, ARGV[2])
end
local reply = state(e)
if reply[1] == 'queued' then
  keep_queue(e.lease)
  tell_holder(e.ref)
end
return reply
