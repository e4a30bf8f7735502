-- renew: sets the full lease anew, for the owner only; never creates. Repeatable.
-- Stands behind the prelude alone.
--
-- ARGV[2] hold   the hold as it was granted
-- ARGV[3] lease  ms
-- ARGV[4] echo   a word to send to the caller's channel, or ''
--
-- { 'held', now, 0, 0, remaining, 0, waiting }
-- { 'lost', now, 0, 0, 0, 0, 0, holder }
local mine = parse(entry_of(ARGV[2]))
lapse(mine.kind)
if ARGV[4] ~= '' then
  tell('echo', mine, 0, ARGV[4])
end
local value = owned(ARGV[2])
if value and mine.mode == 'x' then
  call('PEXPIRE', lock, ARGV[3])
elseif value and not open_to(mine.kind) then
  -- Somebody's plain SET took the key away from the shared holds.
  call('ZREM', shared, value)
  value = nil
elseif value then
  extend(value, now + ARGV[3])
  mark(mine.kind)
end
if value then
  local waiting = redis.pcall('ZCARD', queue) -- a queue of another type costs no holder its lease
  waiting = type(waiting) == 'number' and waiting or 0
  if mine.mode == 'p' and held ~= marker(mine.kind) then
    waiting = waiting + 1 -- by another size now: its permits are wanted back
  end
  return { 'held', now, 0, 0, tonumber(ARGV[3]), 0, waiting }
end
return { 'lost', now, 0, 0, 0, 0, 0, holder() }
