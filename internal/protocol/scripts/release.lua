-- release: gives a hold back, and the lock to whoever is next. With a second entry the same Client is
-- put behind the others, under a new attempt, in the same call.
-- Repeatable: says what became of the second attempt.
--
-- ARGV[1] hold    the hold as it was granted; of a mutex its beginning will do: number, time, and some of the ref
-- ARGV[2] entry   the new attempt; left out with all that comes after it: there is none
-- ARGV[3] latest  server time (ms) after which the new attempt is not queued; 0 for none
-- ARGV[4] how     'queue' the new attempt; 'downgrade' a writer: the new attempt, a reader, has it at once;
--                 'shrink' a permit: the new entry, with less weight, goes on with the same hold
--
-- 'released', or { 'released', now }  given back; nothing queued: acquire says why
-- { 'lost', now, 0, 0, 0, 0, 0, holder }  was not ours any more
-- number, held, queued, gone: what became of the new attempt, as of acquire
local entry = entry_of(given)
local mine = entry and parse(entry) or { kind = 'm', mode = 'x' }
if not entry and held and string.sub(held, 1, #given) == given then
  given = held
end
local again = ARGV[2] and parse(ARGV[2])
local caller = again and again.ref or ''
local latest = tonumber(ARGV[3] or 0)
local waiting = call('ZCARD', queue) -- reads first: a queue of another type stops the script here
lapse(mine.kind)

local value, left = owned(given, mine)
if not value then
  grant(caller, false, false)
  if again then
    local reply = state(again)
    if reply[1] ~= 'gone' then
      return reply
    end
  end
  return { 'lost', now, 0, 0, 0, 0, 0, holder() }
end

if ARGV[4] == 'shrink' then
  if again.weight < parse(entry_of(value)).weight then
    call('ZREM', shared, value)
    call('ZADD', shared, int(now + left), string.match(value, '^vs1 %d+ %d+ ') .. again.raw)
    grant('', false, false)
  end
  return state(again)
end
if again and again.mode == 'p' and again.kind ~= in_use() then
  again = false -- another size is in force: that is for acquire to tell
end

if mine.mode == 'x' then
  held = false
  freed = true
else
  call('ZREM', shared, value)
  if open_to(mine.kind) then
    mark(mine.kind)
  end
end
local readers = mine.kind == 'w' and mine.mode == 'x'

if ARGV[4] == 'downgrade' then
  call('ZREM', queue, again.raw) -- a first write that frees lets the others pass when memory is out
  hold(again, again.lease)
  grant('', false, true)
  return state(again)
end
if not again or latest > 0 and now > latest then
  -- Where it is late the new attempt may have its place by acquire already, and keeps it.
  grant('', false, readers)
  return { 'released', now }
end
if find_hold(again.ref, again.mode) then
  -- This request is late, and the new attempt has got its permits by acquire meanwhile.
  grant('', false, readers)
  return state(again)
end
call('ZREM', queue, again.raw) -- as above
if waiting == 0 and fits(again) then
  -- Nobody else waits: the caller has it again.
  return brief(hold(again, again.lease))
end
call('ZADD', queue, number(), again.raw)
keep_queue(again.lease)
grant(caller, false, readers)
return state(again)
