-- acquire: takes the lock where it is free and nobody waits; joins the queue otherwise.
-- Repeatable: the same attempt gets the same answer and never a second hold.
--
-- ARGV[1] entry   the attempt
-- ARGV[2] latest  server time (ms) after which the request is refused; 0 for none
-- ARGV[3] lease   of a mutex, in ms, as entry says as well; '' of what may be shared
-- ARGV[4] how     'try'; left out: it queues
--
-- number, or number and now: the attempt holds the lock, from now on and with its full lease; nobody waits.
-- held, queued, gone: as in grant.lua. A 'gone' attempt was dropped in the same call.
-- { 'late', now }                                    came after its latest time, nothing done
-- { 'busy', now, 0, 0, remaining, waiting + 1, waiting, holder }   try only
-- { 'mismatch', now, 0, 0, 0, 0, 0, kind }           another primitive, or size, is in use there
local e = parse(ARGV[1])
lapse(e.kind)

-- Nobody waits, and it fits beside those who hold; the others of an owner who holds come in past the queue.
if held == marker(e.kind) and (owned_by(e.kind) or not head()) and fits(e) and not find_hold(e.ref, e.mode) then
  if owned_by(e.kind) and call('ZRANK', queue, e.raw) then -- a ZREM of nothing, too, lets the writes pass when memory is out
    call('ZREM', queue, e.raw)
  end
  return brief(hold(e, e.lease))
end

if call('ZRANK', queue, e.raw) or find_hold(e.ref, e.mode) then
  grant(e.ref, false, false)
  return state(e, true)
end

local kind = in_use()
if kind and class(kind) ~= class(e.kind) then
  grant('', false, false)
  return { 'mismatch', now, 0, 0, 0, 0, 0, kind }
end

grant('', false, false)
if not head() and fits(e) then
  return brief(hold(e, e.lease))
elseif ARGV[4] then
  local n = call('ZCARD', queue)
  return { 'busy', now, 0, 0, remaining(e.mode), n + 1, n, holder() }
else
  call('ZADD', queue, number(), e.raw)
  keep_queue(e.lease)
  tell_holder(e.ref)
end
return state(e, true)
