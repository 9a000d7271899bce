-- Renews an exclusive hold. Keys: for each name the lock, and the claim unless its slot is moving just now.
-- Arguments: id, ttl, how many keys a name has.
local step = tonumber(ARGV[3])
for n = 1, #KEYS, step do
  if redis.call('GET', KEYS[n]) ~= ARGV[1] then return 0 end
end
for n = 1, #KEYS do redis.call('PEXPIRE', KEYS[n], ARGV[2]) end
return 1
