-- Before Redis 7 a script that reads the clock may write only after this.
if redis.replicate_commands then redis.replicate_commands() end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
