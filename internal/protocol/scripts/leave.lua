-- leave: nothing of an attempt remains: its place goes, and the hold where it was granted already.
-- Repeatable.
--
-- ARGV[1] ref    the attempt
-- ARGV[2] entry  its entry, or '' where only the name is known (the queue is searched)
-- ARGV[3] kind   of the primitive
-- ARGV[4] heard  as in check: who gives a wait up looks whether the holder lives; left out: it does not
--
-- { 'left', now }
lapse(ARGV[3])
local first = head()
local moved = false
local function drop(entry)
  moved = call('ZREM', queue, entry) == 1 and entry == first or moved
end
if ARGV[2] ~= '' then
  drop(ARGV[2])
else
  for _, entry in ipairs(call('ZRANGE', queue, 0, -1)) do
    if parse(entry).ref == ARGV[1] then
      drop(entry)
    end
  end
end
show_queue()
if ARGV[4] then
  cut(tonumber(ARGV[4]))
end
local writer = false
local value = find_hold(ARGV[1], 'x')
if value then
  writer = ARGV[3] == 'w'
  held = false
  freed = true
elseif ARGV[3] ~= 'm' then
  value = find_hold(ARGV[1], 'r')
  if value then
    call('ZREM', shared, value)
    if open_to(ARGV[3]) then
      mark(ARGV[3])
    end
  end
end
grant('', moved, writer)
return { 'left', now }
