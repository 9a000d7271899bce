-- Reads a queue and changes nothing. Keys: the lock, its queue. Arguments: what claims' keys begin and end with.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then value = '?' end
local function entry(who)
  local key = ARGV[1] .. who .. ARGV[2]
  local c = redis.call('HMGET', key, 'mode', 'about', 'label', 'token', 'slot', 'held', 'since')
  return { who, c[1], c[2], c[3], c[4], c[5], c[6], c[7], redis.call('PTTL', key) }
end
local entries, found = {}, false
for _, who in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  entries[#entries + 1] = entry(who)
  found = found or who == value
end
-- redis-py's tokens look like claims, but no record and no queue knows them.
if value and not found and #value == 32 and redis.call('EXISTS', ARGV[1] .. value .. ARGV[2]) == 1 then
  table.insert(entries, 1, entry(value))
end
local foreign = value and foreign_identity(KEYS[1])
return { value, redis.call('PTTL', KEYS[1]), entries, type(foreign) == 'string' and foreign }
