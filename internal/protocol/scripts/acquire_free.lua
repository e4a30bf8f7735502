-- acquire_free: how acquire begins: what most requests find, before anything else is even defined. Nothing
-- is held, nobody waits, and a mutex or a writer asks: those who may share come after it. Arguments and replies: see acquire.lua.
if ARGV[4] ~= '0' and tonumber(now_ms) > tonumber(ARGV[4]) then
  return { 'late', tonumber(now_ms) }
end
held = call('GET', lock)
local kind, mode, weight, lease -- set where nothing is held and nobody waits: what is asked for
if not held and call('ZCARD', queue) == 0 then
  kind, mode, weight, lease = string.match(ARGV[2], '^[^ ]+ ([^ ]+) ([^ ]) (%d+) (%d+) ')
  if mode == 'x' and (kind == 'm' or call('ZCARD', shared) == 0) then
    local value = 'vs1 ' .. number() .. ' ' .. now_ms .. ' ' .. ARGV[2]
    call('SET', lock, value, 'PX', lease)
    return value
  end
end
