-- clock: stands behind keys in every script: the server's time.
local clock = call('TIME')
local us = clock[2]
local now_us = clock[1] .. (#us == 6 and us or string.format('%06d', us)) -- as text, for Lua would write 1.7e+15
local now_ms = string.sub(now_us, 1, -4)
local last -- the last number given out; false: none is known; nil: the key was not read yet
