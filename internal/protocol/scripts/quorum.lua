-- quorum: stands behind the clock in the scripts of a lock on a majority of independent servers, each of which
-- has its part of it: the plain recipe's key, with the same value on all.
--
-- KEYS[5] turnstile  where those wait for their turn who want the lock; of use on one of the servers
held = call('GET', lock)
local now = tonumber(now_ms)
local waiting = call('GET', KEYS[5]) and 1 or 0

-- The numbers that follow are higher than that of the token, which may have come from a server whose clock is
-- ahead: so it stands until this one's clock has passed it, and an hour more.
local function raise(n)
  local before = tonumber(call('GET', fence) or 0) or 0
  if before < tonumber(n) then
    local ms = math.max(tonumber(string.sub(n, 1, -4)) or 0, now)
    call('SET', fence, n, 'PXAT', string.format('%.0f', ms + 3600000))
  end
end

local function not_ours()
  return { 'lost', now, 0, 0, 0, 0, waiting, string.sub(held or '', 1, 512) }
end
