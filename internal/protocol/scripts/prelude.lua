-- prelude: stands behind write in every script: what is held, names and messages.
if held == nil then
  held = call('GET', lock)
end

-- A member that is not one of ours has the ref '': it takes part in nothing.
local function parse(entry)
  local ref, kind, mode, weight, lease, first, grace = string.match(entry or '', '^([^ ]+) ([^ ]+) ([^ ]) (%d+) (%d+) (%d+) (%d+) ')
  return { raw = entry, ref = ref or '', kind = kind, mode = mode, weight = tonumber(weight or 0), lease = lease, first = first, grace = tonumber(grace or 0) }
end

-- The entry inside a hold; nil for a marker, a foreign value, nothing.
local function entry_of(value)
  return value and string.match(value, '^vs1 %d+ %d+ ([^ ]+ [^ ]+ [^ ] %d+ %d+ %d+ %d+ .*)$')
end

local function channel(ref)
  local id = string.match(ref, '^([^#]*)#')
  if tag == '' then
    return 'valkeysync:' .. id
  end
  return 'valkeysync:' .. tag .. ':' .. id
end

-- Message: <verb> <kind> <attempt> <number> <server ms> <ms> <waiting> <lock key>. A message that may
-- not be sent (ACL) must not stop a script half-way: timers and checks make up for it.
local function tell(verb, e, number, ms, waiting)
  if e.ref == '' then
    return
  end
  local attempt = string.match(e.ref, '#(.*)$')
  local text = table.concat({ verb, e.kind, attempt, number, now_ms, ms, waiting or 0, lock }, ' ')
  redis.pcall(tag == '' and 'PUBLISH' or 'SPUBLISH', channel(e.ref), text)
end

-- The kind whose shared holds a value marks; nil for any other value.
local function shared_by(value)
  return value and string.match(value, '^vs1 shared (%S+)$')
end

-- A mutex of an owner: the processes of one owner hold it together, everybody else is excluded.
local function owned_by(kind)
  return kind and string.sub(kind, 1, 1) == 'o'
end

-- What may wait for each other on a key: a mutex is one, whoever owns it.
local function class(kind)
  return owned_by(kind) and 'm' or kind
end

-- Whether the key is free of all but shared holds of that kind. A semaphore's size may have been changed
-- since they were given.
local function open_to(kind)
  local by = shared_by(held)
  return not held or by == kind or by and string.sub(by, 1, 1) == 's' and string.sub(kind, 1, 1) == 's'
end

-- Moves the end of a shared hold. It begins with a write that takes no memory: that lets those after it
-- pass on a server that has none left.
local function extend(value, ends)
  call('PERSIST', shared)
  call('ZADD', shared, 'XX', int(ends), value)
end

-- Shared holds whose lease has ended go first in every script. It looks before it writes: after a write
-- that frees, a server without memory would let the writes pass that it is to refuse.
local function lapse(kind)
  local before = '(' .. now_ms
  if kind == 'm' or call('ZCOUNT', shared, '-inf', before) == 0 then
    return
  end
  call('ZREMRANGEBYSCORE', shared, '-inf', before)
  if shared_by(held) and open_to(kind) then
    mark(kind)
  end
end

-- A foreign value may be of any size; who reads a reply needs its beginning.
local function holder()
  return string.sub(held or '', 1, 512)
end

-- The hold of an attempt, and its end; nil where there is none.
local function find_hold(ref, mode)
  if mode == 'x' then
    if held and string.match(held, '^vs1 %d+ %d+ ([^ ]+) ') == ref then
      return held, call('PTTL', lock)
    end
    return nil
  end
  for _, value in ipairs(call('ZRANGE', shared, 0, -1)) do
    if string.find(value, ref, 1, true) and string.match(value, '^vs1 %d+ %d+ ([^ ]+) ') == ref then
      return value, call('ZSCORE', shared, value) - now
    end
  end
  return nil
end

-- The hold as it stands, and its end: a permit's weight may have shrunk since its owner was told of it.
-- nil when it is not the owner's any more. e: the entry in it.
local function owned(value, e)
  if e.mode == 'x' then
    return held == value and value or nil
  end
  local ends = call('ZSCORE', shared, value)
  if ends then
    return value, ends - now
  end
  local found, left = find_hold(e.ref, e.mode)
  local begin = string.match(value, '^vs1 %d+ %d+ ')
  if found and string.sub(found, 1, #begin) == begin then
    return found, left
  end
  return nil
end
