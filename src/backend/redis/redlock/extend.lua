-- Gives a hold another ttl where the key still says so, and has no later token be lower than its own; answers whether it did. Keys: as
-- for an attempt. Arguments: the value, the ttl, the token, the marker or nothing, and 1 if the key is to be set again where it is
-- gone.
if redis.replicate_commands then redis.replicate_commands() end
local lock, key, about, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local value, ttl, token, marker, again = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local there = read(lock)
if key ~= lock and there and there ~= marker then return 0 end
local own = read(key)
if own and own ~= value or not own and again ~= '1' then return 0 end
if own then redis.call('PEXPIRE', key, ttl) else redis.call('SET', key, value, 'PX', ttl) end
if key ~= lock then
  if there then keep(lock, ttl) else redis.call('SET', lock, marker, 'PX', ttl) end
end
if redis.call('HGET', about, 'token') ~= token then redis.call('HSET', about, 'token', token) end
redis.call('PEXPIRE', about, ttl)
if tonumber(redis.call('HGET', counters, 'fence') or 0) < tonumber(token) then
  redis.call('HSET', counters, 'fence', token)
end
return 1
