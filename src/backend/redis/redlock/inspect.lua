-- Reads a queue and changes nothing. Keys: the lock, its queue, its holders. Arguments: what claims' keys begin and
-- end with.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then value = '?' end
local entries = {}
local function add(key, holds)
  local found = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local claim = ARGV[1] .. found[i] .. ARGV[2]
    local c = redis.call('HMGET', claim, 'mode', 'about', 'label', 'token', 'slot', 'held', 'since', 'gone', 'fence')
    if c[1] and not c[8] then
      local token = holds and c[4]
      entries[#entries + 1] =
        { found[i], c[1], c[2], c[3], token, c[5], c[6], c[7], redis.call('PTTL', claim), found[i + 1], token and c[9] }
    end
  end
end
add(KEYS[3], true)
add(KEYS[2], false)
local foreign = value and foreign_identity(KEYS[1])
return { value, redis.call('PTTL', KEYS[1]), entries, type(foreign) == 'string' and foreign }
