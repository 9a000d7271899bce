-- What a key says; `?` of one that is no string.
local function read(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then return '?' end
  return value
end

-- The life that a key has, at least so long.
local function keep(key, life)
  local left = redis.call('PTTL', key)
  if left >= 0 and left < life then redis.call('PEXPIRE', key, life) end
end

-- Of how many slots the lock is one, if its key says so.
local function slots_of(lock)
  return tonumber(string.match(lock or '', '^redlock:slots:(%d+)$'))
end
