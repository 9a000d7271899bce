-- Takes a claim that stands in no queue off the list of nested ones, unless its request to enter may be under way. Key: the
-- list. Arguments: id, for how long such a request may be under way.
local value = redis.call('HGET', KEYS[1], ARGV[1])
if not value then return 0 end
local known, listed = pcall(cjson.decode, value)
if known and type(listed) == 'table' then
  local at = tonumber(listed.at)
  if not at then
    -- An earlier build listed it, which did not say when.
    redis.call('HSET', KEYS[1], ARGV[1], string.format('{"at":%.0f,"names":%s}', now, value))
    return 0
  end
  if now - at < tonumber(ARGV[2]) * 1000 then return 0 end
end
return redis.call('HDEL', KEYS[1], ARGV[1])
