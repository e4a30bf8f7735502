-- grant: stands behind the prelude in every script that can change who holds.

-- The queue outlives the pauses between the checks of its front, and no more. Whoever watches the lock hears
-- by this that somebody joined.
local function keep_queue(lease)
  call('PEXPIRE', queue, int(math.max(3 * lease + 600000, call('PTTL', queue))))
end

-- Taking an entry out makes no event among those that waking needs; who watches the lock is told by one that
-- changes nothing.
local function show_queue()
  local ttl = call('PTTL', queue)
  if ttl > 0 then
    call('PEXPIRE', queue, ttl)
  end
end

local function members()
  return call('ZRANGE', shared, 0, -1)
end

local function used()
  local sum = 0
  for _, value in ipairs(members()) do
    local mode = string.find(value, ' p ', 1, true) -- plain, for there may be many; no field before it is a p
    sum = sum + (mode and string.match(value, '^%d+', mode + 3) or 1)
  end
  return sum
end

-- The kind of the shared holds; nil where there is none of ours, whatever else is there.
local function sharing()
  for _, value in ipairs(redis.pcall('ZRANGEBYSCORE', shared, now_ms, '+inf')) do
    local kind = parse(entry_of(value)).kind
    if kind then
      return kind
    end
  end
end

-- Whether e could hold now, the queue left aside. Shared holds exclude others without their marker, too.
local function fits(e)
  if e.mode == 'x' then
    return not held and not sharing()
  end
  if held and held ~= marker(e.kind) or not held and owned_by(e.kind) and (sharing() or e.kind) ~= e.kind then
    return false
  end
  return e.mode == 'r' or used() + e.weight <= tonumber(string.sub(e.kind, 2))
end

-- How many hear on e's channel here, where the scripts run; nil where they may not be counted (ACL).
local function listeners(e)
  local n = redis.pcall('PUBSUB', tag == '' and 'NUMSUB' or 'SHARDNUMSUB', channel(e.ref))
  return not n.err and n[2] or nil
end

-- Where listeners may not be counted, everybody counts as alive: a dead one costs its first lease.
local function alive(e)
  local n = listeners(e)
  return not n or n > 0
end

-- A holder whose channel nobody hears has died, or will have renewed before its grace is over: its lease
-- is cut to the grace. Nothing else is marked or remembered. A caller that was not heard itself a moment
-- ago (server restart, failover) is no judge of others, and a holder without grace is left alone.
local function cut(heard)
  local function dead(e)
    return e.grace > 0 and heard >= 2 * e.grace and not alive(e)
  end
  local entry = entry_of(held)
  if entry then
    local e = parse(entry)
    if call('PTTL', lock) > e.grace and dead(e) then
      call('PEXPIRE', lock, e.grace)
    end
  elseif shared_by(held) then
    local all = call('ZRANGE', shared, 0, -1, 'WITHSCORES')
    local changed = false
    for i = 1, #all, 2 do
      local e = parse(entry_of(all[i]))
      if all[i + 1] - now > e.grace and dead(e) then
        extend(all[i], now + e.grace)
        changed = e.kind
      end
    end
    if changed then
      mark(changed)
    end
  end
end

-- Takes e out of the queue and gives it the lock, unless it is dead. The caller of the script is alive
-- by definition and is told by the reply, with the full lease; others get a message, after the writes,
-- and the short first lease: a half-open connection counts as alive too.
local served = {}
local function serve(e, caller)
  call('ZREM', queue, e.raw)
  if e.ref == caller then
    hold(e, e.lease)
  elseif alive(e) then
    e.number = hold(e, e.first)
    served[#served + 1] = e
  end
end

-- The front of the queue. What somebody else wrote there is dropped: it could never be served.
local function head()
  local first = call('ZRANGE', queue, 0, 0)[1]
  while first and parse(first).ref == '' do
    call('ZREM', queue, first)
    first = call('ZRANGE', queue, 0, 0)[1]
  end
  return first
end

-- The kind of primitive that is in use on the key, a semaphore's with the size in force; nil where there is
-- none of ours.
local function in_use()
  return shared_by(held) or parse(entry_of(held)).kind or sharing() or parse(head()).kind
end

-- Serves the queue as far as it can have the lock, and ends every script that may have freed it.
-- moved: the front of the queue has changed already. readers: a writer left, so all readers that wait
-- go in together, as with sync.RWMutex.
local function grant(caller, moved, readers)
  if readers then
    for _, entry in ipairs(call('ZRANGE', queue, 0, -1)) do
      local e = parse(entry)
      if e.mode == 'r' and fits(e) then
        serve(e, caller)
        moved = true
      end
    end
  end
  local first = head()
  while first do
    local e = parse(first)
    if not fits(e) then
      break
    end
    serve(e, caller)
    moved = true
    first = head()
  end
  local by = shared_by(held)
  if owned_by(by) and first then -- the rest of the owner comes in past the others, who wait for all of it
    for _, entry in ipairs(call('ZRANGE', queue, 0, -1)) do
      local e = parse(entry)
      if e.kind == by then
        serve(e, caller)
      end
    end
  end
  if freed then
    call('DEL', lock)
    freed = false
  end
  if #served > 0 then
    local waiting = call('ZCARD', queue)
    for _, e in ipairs(served) do
      tell('grant', e, e.number, e.first, waiting)
    end
    served = {}
  end
  if first and moved then
    local e = parse(first)
    if e.ref ~= caller then
      local foreign = held and string.sub(held, 1, 4) ~= 'vs1 '
      tell('front', e, 0, foreign and '1' or '0')
    end
  end
end

-- Whoever holds learns that someone waits, unless it is its own Client that does; and, under crash detection, whether
-- it was counted, for who hears on a replica hears this too.
local function tell_holder(ref)
  local id = string.match(ref, '^[^#]*#')
  local function tell_one(value)
    local e = parse(entry_of(value))
    if string.sub(e.ref, 1, #id) ~= id then
      tell('waits', e, 0, e.grace > 0 and (listeners(e) or 0) > 0 and '1' or '0')
    end
  end
  if entry_of(held) then
    tell_one(held)
  elseif shared_by(held) then
    for _, value in ipairs(members()) do
      tell_one(value)
    end
  end
end

-- How long the lock stays as it is, at most, for one who waits: -1 without end. A permit may come with
-- the first shared hold that ends, a writer needs the last to end.
local function remaining(mode)
  local left = call('PTTL', lock)
  if left == -2 or mode == 'p' and shared_by(held) then
    local i = mode == 'p' and 0 or -1
    local ends = call('ZRANGE', shared, i, i, 'WITHSCORES')[2]
    return ends and ends - now or 0
  end
  return left
end

-- The reply of every script that speaks of an attempt:
-- { 'held', now, number, since, remaining ms, 0, waiting }
-- { 'queued', now, dead, 0, remaining ms of the holder, place, waiting, holder }
-- { 'gone', now }
-- dead: 1 where the one at the front is, and the caller joins: what check finds dead it drops.
local function state(e, joins)
  local value, left = find_hold(e.ref, e.mode)
  if value then
    local n, since = string.match(value, '^vs1 (%d+) (%d+) ')
    return { 'held', now, tonumber(n), tonumber(since), left, 0, call('ZCARD', queue) }
  end
  local rank = call('ZRANK', queue, e.raw)
  if rank then
    local dead = joins and rank > 0 and not alive(parse(head()))
    return { 'queued', now, dead and 1 or 0, 0, remaining(e.mode), rank + 1, call('ZCARD', queue), holder() }
  end
  return { 'gone', now }
end
