-- force: takes the lock from whoever has it, tells them, and serves the queue.
--
-- ARGV[1] seen  the lock's value, as status tells it: where another is there, or none, nothing is done. Of shared
--               holds that is their marker, whoever they are. Left out: whoever has it
--
-- { 'forced', now, 0, 0, 0, 0, waiting, former holder }
-- { 'changed', now, 0, 0, 0, 0, waiting, holder }
local before = holder()
if ARGV[1] and ARGV[1] ~= before then
  return { 'changed', now, 0, 0, 0, 0, call('ZCARD', queue), before }
end
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
