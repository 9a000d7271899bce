-- What queues of one server and queues of the nodes of a Redlock have in common.
local function claim_of(n, who) return ARGV[2 * n] .. who .. ARGV[2 * n + 1] end

-- The lock's value; a key that is no string belongs to another kind of client, and is taken.
local function value_of(n)
  local value = redis.pcall('GET', lock_key(n))
  if type(value) == 'table' then return '?' end
  return value
end

local function is_marker(value) return value and string.sub(value, 1, #mark) == mark end

-- What the lock's key must say for a hold of that mode.
local function proof(mode, who)
  if mode == 'exclusive' then return who end
  return mark .. mode
end

-- Claims of different kinds do not mix.
local function kind_of(mode)
  if string.sub(mode, 1, 6) == 'slots:' then return mode end
  return 'mutex'
end

-- Lines outlive their claims by a day, so that an idle one is no leftover.
local function keep(key, ttl)
  local length = ttl + 86400000
  if redis.call('PTTL', key) < length - 3600000 then redis.call('PEXPIRE', key, length) end
end

local function least(a, b)
  if a < 0 then return b end
  if b < 0 then return a end
  return math.min(a, b)
end

