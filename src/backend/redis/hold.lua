-- An exclusive hold by its lock's key alone. While a slot moves between two nodes of a cluster, each refuses a script
-- if it lacks one of the keys. A script with one key works at the node that has it.
--
-- Keys: the lock of each name. Arguments: the claim's id; the ttl in milliseconds, or 0 to release; for each name the
-- leases, the claim, the queue and the writers, which are renewed if they are reachable. Returns whether the claim
-- holds, or did.

-- Before Redis 7 a script that reads a remaining ttl may write only after this.
if redis.replicate_commands then redis.replicate_commands() end

for _, lock in ipairs(KEYS) do
  if redis.call('GET', lock) ~= ARGV[1] then return 0 end
end

local ttl = tonumber(ARGV[2])
if ttl == 0 then
  redis.call('DEL', unpack(KEYS))
  return 1
end
local clock = redis.call('TIME')
local ends = clock[1] * 1000 + math.floor(clock[2] / 1000) + ttl
for n, lock in ipairs(KEYS) do
  redis.call('PEXPIRE', lock, ttl)
  redis.pcall('ZADD', ARGV[4 * n - 1], 'XX', string.format('%.0f', ends), ARGV[1])
  for k = 4 * n - 1, 4 * n + 2 do
    -- Equivalent to keep in queue.lua.
    local length, left = ttl + 86400000, redis.pcall('PTTL', ARGV[k])
    if type(left) == 'number' and left < length - 3600000 then redis.pcall('PEXPIRE', ARGV[k], length) end
  end
end
return 1
