-- clock: stands behind keys in every script: the server's time, and the numbers of holds.
local clock = call('TIME')
local us = clock[2]
local now_us = clock[1] .. (#us == 6 and us or string.format('%06d', us)) -- as text, for Lua would write 1.7e+15
local now_ms = string.sub(now_us, 1, -4)

-- Numbers rise whatever was lost: the clock has moved on. The key may lapse, for the same reason: an hour after
-- the last number, or up to 100 s sooner, for its end is set anew when the digits before those have changed.
-- Times have 16 digits until 2286, so they compare as text, which takes the server less time.
local last -- the number that this script gave out last
local function number()
  local n = now_us
  local before = last or call('SET', fence, n, 'KEEPTTL', 'GET')
  if before and (#before ~= #n or before >= n) then
    local b = tonumber(before) or 0
    if b >= tonumber(n) then
      n = string.format('%.0f', b + 1)
      call('SET', fence, n, 'KEEPTTL')
    end
  end
  if not before or string.sub(before, 1, 8) ~= string.sub(n, 1, 8) then
    call('PEXPIRE', fence, string.format('%.0f', tonumber(string.sub(n, 1, -4)) - tonumber(now_ms) + 3600000))
  end
  last = n
  return n
end
