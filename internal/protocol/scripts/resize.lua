-- resize: a semaphore of another size takes the key over. Who holds goes on, by the size that was; who
-- waits by it is dropped, and told. Repeatable.
--
-- ARGV[1] kind  of the semaphore whose size is in force from now on
--
-- { 'resized', now }
-- { 'mismatch', now, 0, 0, 0, 0, 0, kind }  another primitive is in use there
local kind = ARGV[1]
lapse(kind)
local was = in_use() or kind
if string.sub(was, 1, 1) ~= 's' then
  grant('', false, false)
  return { 'mismatch', now, 0, 0, 0, 0, 0, was }
end
for _, entry in ipairs(call('ZRANGE', queue, 0, -1)) do
  local e = parse(entry)
  if e.kind ~= kind then
    call('ZREM', queue, entry)
    tell('dropped', e, tonumber(string.sub(kind, 2)), '0')
  end
end
if shared_by(held) and held ~= marker(kind) then
  held = marker(kind)
  call('SET', lock, held, 'KEEPTTL')
  for _, value in ipairs(members()) do
    tell('waits', parse(entry_of(value)), 0, '0') -- what is held by another size is not handed on any more
  end
end
grant('', false, false)
return { 'resized', now }
