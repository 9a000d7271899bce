-- One lock at one node of a Redlock: every step on it.
--
-- Keys:
--   the lock      a string that other Redlock clients understand: the value of the claim that holds it. For a lock with
--                 slots it is 'redlock:slots:' and their number
--   the hold      the key that the step concerns: the lock's own, or that of a slot, with the value of its claim
--   the counters  a hash: 'fence', the last token, and 'success', when the last successful run acquired
-- Arguments: the command; the beginning and the end of the keys of slots; the beginning of all values of the claim; the
-- number of its attempt; the command's own. A value has lines: the claim's record with the number of the attempt, the
-- token, the start of the hold, its label, and the client that asks it to leave.

-- Before Redis 7 a script that reads the clock may write only after this.
if redis.replicate_commands then redis.replicate_commands() end

local lock, hold, counters = KEYS[1], KEYS[2], KEYS[3]
local own, attempt = ARGV[4], tonumber(ARGV[5])

-- Returns a key's value; `?` for a key that is not a string, which other kinds of clients may set.
local function value_of(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then return '?' end
  return value
end

-- Returns all keys that a hold can have, by slot; 0 for a lock without slots.
local function keys()
  local slots = string.match(value_of(lock) or '', '^redlock:slots:(%d+)$')
  if not slots then return { [0] = lock } end
  local all = {}
  for n = 1, slots do all[n] = ARGV[2] .. n .. ARGV[3] end
  return all
end

-- Returns the number of the claim's attempt that set this value; nil for another claim's value.
local function attempt_of(value)
  if not value or string.sub(value, 1, #own) ~= own then return nil end
  return tonumber(string.match(value, '"attempt":(%d+)}\n'))
end

local function lines(value)
  local all = {}
  for line in string.gmatch(value .. '\n', '([^\n]*)\n') do all[#all + 1] = line end
  return all
end

-- Sets line `n` of a hold's value to `text`.
local function put(key, n, text)
  local all = lines(value_of(key))
  if all[n] == text then return end
  all[n] = text
  redis.call('SET', key, table.concat(all, '\n'), 'KEEPTTL')
end

-- Keeps the lock's key set to the number of slots for at least `ttl`. Returns whether it could be set.
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

-- Returns the id under which the hold of another program's client is shown, which is stable while its key is unchanged.
-- For a key that is not a string, its serialised value counts. Returns an error if it cannot be read, and false if the
-- lock is free.
local function foreign_identity(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then value = redis.pcall('DUMP', key) end
  if type(value) ~= 'string' then return value end
  return string.sub(redis.sha1hex(key .. '\0' .. value), 1, 32)
end

local commands = {}

-- Sets the key, unless another claim has. `proposal` is for the token; `marker` is the value of the lock's key if it
-- has slots. Returns the token, or 0.
function commands.acquire(value, ttl, proposal, marker)
  ttl = tonumber(ttl)
  local there = value_of(hold)
  -- An attempt replaces the key of an earlier one.
  if there and (attempt_of(there) or math.huge) > attempt or not mark(marker, ttl) then return 0 end
  local token = micros(math.max(tonumber(proposal), counter('fence') + 1))
  redis.call('HSET', counters, 'fence', token)
  redis.call('SET', hold, table.concat({ value, token, micros(now()), '', '' }, '\n'), 'PX', ttl)
  return token
end

-- Renews the hold if the key still has its value, or, with `again` ('1'), if the key is gone. Later tokens are at least
-- as high as its own. Returns whether it did.
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

-- Removes the keys that this attempt and earlier ones have set; `succeeded` ('1') if their run was a success. The last
-- success is that of the run which acquired last; a time more than a minute in the future is ignored. Returns the
-- number of keys.
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
  -- The lock's key, once no slot is taken.
  if left == 0 then redis.call('DEL', lock) end
  return found
end

-- Sets line `n` of the claim's values to `text`. Returns their number.
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

-- Removes the hold of another program's client if it is still shown as that id. Returns whether it was.
function commands.evict_foreign(id)
  local identity = foreign_identity(lock)
  if type(identity) == 'table' then return identity end
  if identity ~= id then return 0 end
  redis.call('DEL', lock)
  return 1
end

-- Reads the holds and changes nothing. Returns for each the slot, the lines of its value, the rest of its life, and the
-- id under which it is shown if another program's client set it.
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
