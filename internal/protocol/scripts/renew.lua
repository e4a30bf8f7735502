-- renew: sets the full lease anew, for the owner only; never creates. Repeatable.
-- Stands behind the prelude alone, and does not look at the queue: whatever lies there must not cost a
-- holder its lease.
--
-- ARGV[1] hold   the hold as it was granted
-- ARGV[2] lease  ms
-- ARGV[3] echo   a word to send to the caller's channel, or ''
--
-- { 'held', now, 0, 0, remaining, 0, 1 where the semaphore has another size by now, else 0 }
-- { 'lost', now, 0, 0, 0, 0, 0, holder }
local mine = parse(entry_of(ARGV[1]))
lapse(mine.kind)
if ARGV[3] ~= '' then
  tell('echo', mine, 0, ARGV[3])
end
local value = owned(ARGV[1], mine)
if value and mine.mode == 'x' then
  call('PEXPIRE', lock, ARGV[2])
elseif value and not open_to(mine.kind) then
  -- Somebody's plain SET took the key away from the shared holds.
  call('ZREM', shared, value)
  value = nil
elseif value then
  extend(value, now + ARGV[2])
  mark(mine.kind)
end
if value then
  -- By another size now: its permits are wanted back.
  local wanted = mine.mode == 'p' and held ~= marker(mine.kind)
  return { 'held', now, 0, 0, tonumber(ARGV[2]), 0, wanted and 1 or 0 }
end
return { 'lost', now, 0, 0, 0, 0, 0, holder() }
