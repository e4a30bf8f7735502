-- acquire: takes the lock where it is free and nobody waits; joins the queue otherwise.
-- Repeatable: the same attempt gets the same answer and never a second hold.
--
-- ARGV[2] entry   the attempt
-- ARGV[3] how     'queue' or 'try'
-- ARGV[4] latest  server time (ms) after which the request is refused; 0 for none
--
-- held, queued, gone: as in grant.lua. A 'gone' attempt was dropped in the same call.
-- { 'late', now }                                    came after its latest time, nothing done
-- { 'busy', now, 0, 0, remaining, waiting + 1, waiting, holder }   try only
-- { 'mismatch', now, 0, 0, 0, 0, 0, kind }           another primitive, or size, is in use there
local e = parse(ARGV[2])
local latest = tonumber(ARGV[4])
if latest > 0 and now > latest then
  return { 'late', now }
end
lapse(e.kind)

-- Nothing there: the common case pays for nothing else.
if not held and not head() and fits(e) and (e.mode == 'x' or call('ZCARD', shared) == 0) then
  local n = hold(e, e.lease)
  return { 'held', now, n, now, tonumber(e.lease), 0, 0 }
end

if call('ZRANK', queue, e.raw) or find_hold(e.ref, e.mode) then
  grant(e.ref, false, false)
  return state(e)
end

local kind = in_use()
if kind and kind ~= e.kind then
  grant('', false, false)
  return { 'mismatch', now, 0, 0, 0, 0, 0, kind }
end

grant('', false, false)
if not head() and fits(e) then
  local n = hold(e, e.lease)
  return { 'held', now, n, now, tonumber(e.lease), 0, 0 }
elseif ARGV[3] == 'try' then
  local n = call('ZCARD', queue)
  return { 'busy', now, 0, 0, remaining(e.mode), n + 1, n, holder() }
else
  call('ZADD', queue, int(number()), e.raw)
  keep_queue(e.lease)
  tell_holder(e.ref)
end
return state(e)
