-- acquire_free: how acquire begins: what most requests find, before the rest is even defined. Nothing
-- is held, nobody waits, and it is for a mutex: what may be shared comes after it. Arguments and replies: see acquire.lua.
local latest = ARGV[2]
if latest < now_ms and latest ~= '0' then -- both have 13 digits
  return { 'late', tonumber(now_ms) }
end
local free = call('EXISTS', lock, queue, shared) == 0
if free and ARGV[3] ~= '' then
  local n = number()
  call('SET', lock, 'vs1 ' .. n .. ' ' .. now_ms .. ' ' .. ARGV[1], 'PX', ARGV[3])
  return brief(n)
end
