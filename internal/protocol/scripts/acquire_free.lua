-- acquire_free: how acquire begins: what most requests find, before anything else is even defined. Nothing
-- is held, nobody waits, and it is for a mutex: what may be shared comes after it. Arguments and replies: see acquire.lua.
local latest = ARGV[3]
if latest < now_ms and latest ~= '0' then -- both have 13 digits
  return { 'late', tonumber(now_ms) }
end
local free = call('EXISTS', lock, queue) == 0
if free and ARGV[4] ~= '' then
  local value = 'vs1 ' .. number() .. ' ' .. now_ms .. ' ' .. ARGV[2]
  call('SET', lock, value, 'PX', ARGV[4])
  return value
end
