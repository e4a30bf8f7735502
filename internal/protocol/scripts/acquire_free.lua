-- acquire_free: how acquire begins: what most requests find, before anything else is even defined. Nothing
-- is held, nobody waits, and a mutex or a writer asks: those who may share come after it. Arguments and replies: see acquire.lua.
local latest = ARGV[4]
if latest < now_ms and latest ~= '0' then -- both have 13 digits
  return { 'late', tonumber(now_ms) }
end
local free = call('EXISTS', lock, shared, queue) == 0
if free and ARGV[5] ~= '' then
  local value = 'vs1 ' .. number() .. ' ' .. now_ms .. ' ' .. ARGV[2]
  call('SET', lock, value, 'PX', ARGV[5])
  return value
end
