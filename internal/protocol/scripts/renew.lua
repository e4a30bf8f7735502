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
local ours = false
if mine.mode == 'x' then
  ours = held == ARGV[2]
  if ours then
    call('PEXPIRE', lock, ARGV[3])
  end
elseif call('ZSCORE', shared, ARGV[2]) then
  if held and held ~= marker(mine.kind) then
    -- Somebody's plain SET took the key away from the readers.
    call('ZREM', shared, ARGV[2])
  else
    ours = true
    call('ZADD', shared, 'XX', int(now + ARGV[3]), ARGV[2])
    mark(mine.kind)
  end
end
if ours then
  return { 'held', now, 0, 0, tonumber(ARGV[3]), 0, call('ZCARD', queue) }
end
return { 'lost', now, 0, 0, 0, 0, 0, holder() }
