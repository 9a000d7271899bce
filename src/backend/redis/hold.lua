-- Renews an exclusive hold. Keys: for each name the lock, and the claim and the queue unless their slot is moving just
-- now. Arguments: id, ttl, how many keys a name has.
-- Before Redis 7 a script that asks for what is left of a life may write only after this.
if redis.replicate_commands then redis.replicate_commands() end
local step = tonumber(ARGV[3])
for n = 1, #KEYS, step do
  if redis.call('GET', KEYS[n]) ~= ARGV[1] then return 0 end
end
for n = 1, #KEYS, step do
  redis.call('PEXPIRE', KEYS[n], ARGV[2])
  if step > 1 then
    redis.call('PEXPIRE', KEYS[n + 1], ARGV[2])
    -- As keep in common.lua. Whoever holds is in the queue, also in one that somebody deleted.
    local length, left = ARGV[2] + 86400000, redis.call('PTTL', KEYS[n + 2])
    if left == -2 then redis.call('ZADD', KEYS[n + 2], 1, ARGV[1]) end
    if left < length - 3600000 then redis.call('PEXPIRE', KEYS[n + 2], length) end
  end
end
return 1
