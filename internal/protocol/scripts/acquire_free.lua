-- acquire_free: how acquire begins: what most requests find, before anything else is even defined. Nothing
-- is held, nobody waits, and it is for a mutex: what may be shared comes after it. Arguments and replies: see acquire.lua.
local latest = ARGV[2]
if latest < now_ms and latest ~= '0' then -- both have 13 digits
  return { 'late', tonumber(now_ms) }
end
local free = call('EXISTS', lock, queue) == 0
if free and ARGV[3] ~= '' then
  last = call('SET', fence, now_us, 'KEEPTTL', 'GET')
  if not last or #last == #now_us and last < now_us then -- else number sees to it: the clock went back
    if not last or last < string.sub(now_us, 1, 8) then
      call('PEXPIRE', fence, '3600000')
    end
    call('SET', lock, 'vs1 ' .. now_us .. ' ' .. now_ms .. ' ' .. ARGV[1], 'PX', ARGV[3])
    return now_us
  end
end
