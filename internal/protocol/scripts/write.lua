-- write: stands behind number in every script: how a hold is written.
local now = tonumber(now_ms)

local function int(n)
  return string.format('%.0f', n)
end

local function marker(kind)
  return 'vs1 shared ' .. kind
end

-- The marker stands as long as the longest shared lease, which every change of them sets anew: by its
-- expiry alone where it stands already, for holders watch the key, and a SET would wake them all. It keeps
-- the size that it names; kind is for where it is gone.
-- left: how long that is, where the caller knows it.
local function mark(kind, left)
  if not left then
    local longest = call('ZRANGE', shared, -1, -1, 'WITHSCORES')[2]
    left = longest and int(math.max(longest - now, 1))
  end
  if left then
    if held then
      call('PEXPIRE', lock, left)
    else
      held = marker(kind)
      call('SET', lock, held, 'PX', left)
    end
    freed = false
    call('PEXPIRE', shared, left)
  elseif held then
    held = false
    freed = true
  end
end

-- Writes the hold of e, and returns its number. only: there is no other shared hold.
local function hold(e, ms, only)
  local n = number()
  local value = 'vs1 ' .. n .. ' ' .. now_ms .. ' ' .. e.raw
  if e.mode == 'x' then
    call('SET', lock, value, 'PX', ms)
    held = value
    freed = false
  else
    call('ZADD', shared, int(now + ms), value)
    mark(e.kind, only and ms)
  end
  return n
end
