-- force: takes the lock from whoever has it, tells them, and serves the queue.
--
-- { 'forced', now, 0, 0, 0, 0, waiting, former holder }
local before = holder()
local entry = entry_of(held)
if entry then
  tell('lost', parse(entry), 0, '0')
end
for _, value in ipairs(members()) do
  local e = entry_of(value)
  if e then
    tell('lost', parse(e), 0, '0')
  end
end
call('DEL', lock, shared)
held = false
grant('', false, entry and parse(entry).kind == 'w')
return { 'forced', now, 0, 0, 0, 0, call('ZCARD', queue), before }
