-- number: stands behind clock in every script: the numbers of holds.

-- Numbers rise whatever was lost: the clock has moved on. The key may lapse, for the same reason: an hour after
-- the last number, or up to 100 s sooner, for its end is set anew when the digits before those have changed.
-- Times have 16 digits until 2286, so they compare as text, which takes the server less time.
local function number()
  local n = now_us
  if last == nil then
    last = call('SET', fence, n, 'KEEPTTL', 'GET')
  end
  if last and (#last ~= #n or last >= n) then
    local l = tonumber(last) or 0
    if l >= tonumber(n) then
      n = string.format('%.0f', l + 1)
      call('SET', fence, n, 'KEEPTTL')
    end
  end
  if not last or string.sub(last, 1, 8) ~= string.sub(n, 1, 8) then
    call('PEXPIRE', fence, string.format('%.0f', tonumber(string.sub(n, 1, -4)) - tonumber(now_ms) + 3600000))
  end
  last = n
  return n
end

-- What a reply says of a new hold: its number, and the time where the number does not tell it.
local function brief(n)
  return n == now_us and n or n .. ' ' .. now_ms
end
