-- clock: stands behind keys in every script: the server's time, and the numbers of holds.
local clock = call('TIME')
local us = clock[2]
local now_us = clock[1] .. (#us == 6 and us or string.format('%06d', us)) -- as text, for Lua would write 1.7e+15
local now_ms = string.sub(now_us, 1, -4)
local now = tonumber(now_ms)

local function int(n)
  return string.format('%.0f', n)
end

-- Numbers rise whatever was lost: the clock has moved on. The key may lapse, for the same reason.
local last -- the number that this script gave out last
local function number()
  local n = now_us
  local before = tonumber(last or call('SET', fence, n, 'PX', 3600000, 'GET') or 0) or 0
  if before >= tonumber(n) then
    n = int(before + 1)
    call('SET', fence, n, 'PX', 3600000)
  end
  last = n
  return n
end
