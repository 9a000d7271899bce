-- One lock at one node of a Redlock: every step on it.
--
-- Keys:
--   the lock      a string, as other Redlock clients know it: the value of the claim that holds it; of a lock with slots
--                 'redlock:slots:' and how many these are
--   the hold      the key that the step is about: the lock's own, or that of a slot, with the value of its claim
--   the counters  a hash: 'fence', the last token, and 'success', when the last successful run acquired
-- Arguments: the command; what the keys of slots begin and end with; how all values of the claim begin; which of its attempts
-- this is; the command's own.
-- A value has lines: the claim's record with the number of the attempt, the token, since when it holds, its label, and who asks
-- it to leave.

-- Before Redis 7 a script that reads the clock may write only after this.
if redis.replicate_commands then redis.replicate_commands() end

local lock, hold, counters = KEYS[1], KEYS[2], KEYS[3]
local own, attempt = ARGV[4], tonumber(ARGV[5])

-- A key's value; `?` of one that is no string, as another kind of client may set.
local function value_of(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then return '?' end
  return value
end

-- All keys that a hold can be, by slot; 0 of a lock without.
local function keys()
  local slots = string.match(value_of(lock) or '', '^redlock:slots:(%d+)$')
  if not slots then return { [0] = lock } end
  local all = {}
  for n = 1, slots do all[n] = ARGV[2] .. n .. ARGV[3] end
  return all
end

-- Which attempt of the claim set this value; nil of another's.
local function attempt_of(value)
  if not value or string.sub(value, 1, #own) ~= own then return nil end
  return tonumber(string.match(value, '"attempt":(%d+)}\n'))
end

local function lines(value)
  local all = {}
  for line in string.gmatch(value .. '\n', '([^\n]*)\n') do all[#all + 1] = line end
  return all
end

-- Has line `n` of a hold's value say `text`.
local function put(key, n, text)
  local all = lines(value_of(key))
  if all[n] == text then return end
  all[n] = text
  redis.call('SET', key, table.concat(all, '\n'), 'KEEPTTL')
end

-- Has the lock of a slot say for at least `ttl` how many slots there are. Answers whether it can say so.
local function mark(marker, ttl)
  if hold == lock then return true end
  local there = value_of(lock)
  if there and there ~= marker then return false end
  if not there then
    redis.call('SET', lock, marker, 'PX', ttl)
  elseif redis.call('PTTL', lock) < ttl then
    redis.call('PEXPIRE', lock, ttl)
  end
  return true
end

local function micros(time) return string.format('%.0f', time) end

local function now()
  local clock = redis.call('TIME')
  return clock[1] * 1000000 + clock[2]
end

local function counter(name) return tonumber(redis.call('HGET', counters, name) or 0) end

-- What the hold of another program's client is shown as: the same for as long as its key says the same. A key that is no
-- string says what it is made of. An error if that cannot be told, and false if nobody holds.
local function foreign_identity(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then value = redis.pcall('DUMP', key) end
  if type(value) ~= 'string' then return value end
  return string.sub(redis.sha1hex(key .. '\0' .. value), 1, 32)
end

local commands = {}

-- Sets the key, unless somebody else has. `proposal` is for the token; `marker` is what a lock with slots says. Answers the token,
-- or 0.
function commands.acquire(value, ttl, proposal, marker)
  ttl = tonumber(ttl)
  local there = value_of(hold)
  -- What an earlier attempt has set makes way for this one.
  if there and (attempt_of(there) or math.huge) > attempt or not mark(marker, ttl) then return 0 end
  local token = micros(math.max(tonumber(proposal), counter('fence') + 1))
  redis.call('HSET', counters, 'fence', token)
  redis.call('SET', hold, table.concat({ value, token, micros(now()), '', '' }, '\n'), 'PX', ttl)
  return token
end

-- Gives the hold another ttl where the key still says so, or, with `again` ('1'), where it is gone; no later token is lower
-- than its own. Answers whether it did.
function commands.extend(value, ttl, token, marker, again)
  ttl = tonumber(ttl)
  local there = value_of(hold)
  if there and attempt_of(there) ~= attempt or not there and again ~= '1' or not mark(marker, ttl) then return 0 end
  if not there then redis.call('SET', hold, value .. '\n\n\n\n', 'PX', ttl) end
  put(hold, 2, token)
  redis.call('PEXPIRE', hold, ttl)
  if counter('fence') < tonumber(token) then redis.call('HSET', counters, 'fence', token) end
  return 1
end

-- Removes what this attempt and earlier ones have set; `succeeded` ('1') if their run was a success. The last success is that
-- of the run which acquired last; one that is dated more than a minute later than now tells nothing. Answers how many there were.
function commands.release(succeeded)
  local found, left = 0, 0
  for _, key in pairs(keys()) do
    local value = value_of(key)
    if (attempt_of(value) or math.huge) <= attempt then
      found = found + 1
      redis.call('DEL', key)
      local since, last = lines(value)[3], counter('success')
      if succeeded == '1' and since ~= '' and (last < tonumber(since) or last > now() + 60000000) then
        redis.call('HSET', counters, 'success', since)
      end
    elseif value then
      left = left + 1
    end
  end
  -- The lock of slots of which none is taken.
  if left == 0 then redis.call('DEL', lock) end
  return found
end

-- Has line `n` of the claim's values say `text`. Answers how many there are.
function commands.note(n, text)
  local found = 0
  for _, key in pairs(keys()) do
    if attempt_of(value_of(key)) then
      found = found + 1
      put(key, tonumber(n), text)
    end
  end
  return found
end

-- Removes the hold of another program's client if it is still what the id stands for. Answers whether it was.
function commands.evict_foreign(id)
  local identity = foreign_identity(lock)
  if type(identity) == 'table' then return identity end
  if identity ~= id then return 0 end
  redis.call('DEL', lock)
  return 1
end

-- Reads the holds and changes nothing: of each the slot, the lines of its value, what is left of it, and what it is shown as if
-- another program's client set it.
function commands.inspect()
  local found = {}
  for n, key in pairs(keys()) do
    local value = value_of(key)
    if value then
      local identity = foreign_identity(key)
      if type(identity) ~= 'string' then identity = false end
      found[#found + 1] = { n, lines(value), redis.call('PTTL', key), identity }
    end
  end
  return found
end

return commands[ARGV[1]](unpack(ARGV, 6))
