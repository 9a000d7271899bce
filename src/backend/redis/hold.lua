-- An exclusive hold by its lock's key alone. While a slot of a cluster moves from node to node, a script whose keys are
-- not all on one of the two is refused; with one key it can be done wherever that is.
--
-- Keys: the lock of each name. Arguments: the claim's id; for how long to renew it, or 0 to let go of it; for each name
-- the claim and the queue, which are renewed where they can be reached. Answers whether the claim holds, or did.

-- Before Redis 7 a script that asks for what is left of a life may write only after this.
if redis.replicate_commands then redis.replicate_commands() end

for _, lock in ipairs(KEYS) do
  if redis.call('GET', lock) ~= ARGV[1] then return 0 end
end

local ttl = tonumber(ARGV[2])
if ttl == 0 then
  redis.call('DEL', unpack(KEYS))
  return 1
end
for n, lock in ipairs(KEYS) do
  local claim, queue = ARGV[2 * n + 1], ARGV[2 * n + 2]
  redis.call('PEXPIRE', lock, ttl)
  redis.pcall('PEXPIRE', claim, ttl)
  -- As keep_queue in queue.lua.
  local length, left = ttl + 86400000, redis.pcall('PTTL', queue)
  if type(left) == 'number' and left < length - 3600000 then redis.pcall('PEXPIRE', queue, length) end
end
return 1
