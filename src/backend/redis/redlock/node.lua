-- One lock at one node of a Redlock: every step on it.
--
-- Keys:
--   the lock      a string that other Redlock clients understand: the value of the claim that holds it. For a lock with
--                 slots it is 'redlock:slots:' and their number
--   the hold      the key that the step concerns: the lock's own, or that of a slot, with the value of its claim
--   the counters  a hash: 'fence', the last token, and 'success', when the last successful run acquired
-- Arguments: the command; the beginning and the end of the keys of slots; the beginning of the values that the step
-- concerns: those of one attempt, or of all attempts of a claim; the command's own. A value has lines: the claim's record
-- with the number of the attempt, the token, the start of the hold, its label, and the client that asks it to leave.

-- Before Redis 7 a script that reads the clock may write only after this.
if redis.replicate_commands then redis.replicate_commands() end

local lock, hold, counters = KEYS[1], KEYS[2], KEYS[3]
local own = ARGV[4]

-- Returns a key's value; `?` for a key that is not a string, which other kinds of clients may set.
local function value_of(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then return '?' end
  return value
end

local function is_own(value) return value and string.sub(value, 1, #own) == own end

-- Returns all holds of the lock: the slot, or 0 for a lock without slots, the key and its value.
local function holds()
  local slots = string.match(value_of(lock) or '', '^redlock:slots:(%d+)$')
  local all = {}
  for n = slots and 1 or 0, slots or 0 do
    local key = slots and ARGV[2] .. n .. ARGV[3] or lock
    local value = value_of(key)
    if value then all[#all + 1] = { slot = n, key = key, value = value } end
  end
  return all
end

local function lines(value)
  local all = {}
  for line in string.gmatch(value .. '\n', '([^\n]*)\n') do all[#all + 1] = line end
  return all
end

-- Sets line `n` of a hold's value to `text`.
local function put(key, value, n, text)
  local all = lines(value)
  if all[n] == text then return end
  all[n] = text
  redis.call('SET', key, table.concat(all, '\n'), 'KEEPTTL')
end

-- Keeps the lock's key set to the number of slots for at least `ttl`. Returns whether it could be set.
local function mark(marker, ttl)
  if hold == lock then return true end
  local there = value_of(lock)
  if there and there ~= marker then return false end
  if not there then redis.call('SET', lock, marker, 'PX', ttl) end
  if redis.call('PTTL', lock) < tonumber(ttl) then redis.call('PEXPIRE', lock, ttl) end
  return true
end

local function text_of(number) return string.format('%.0f', number) end

-- Returns the time in microseconds.
local function now()
  local clock = redis.call('TIME')
  return clock[1] * 1000000 + clock[2]
end

local function counter(name) return tonumber(redis.call('HGET', counters, name) or 0) end

-- Returns when the last successful run acquired; 0 if that is unknown, or more than a minute in the future.
local function last_success()
  local at = counter('success')
  return at <= now() + 60000000 and at or 0
end

-- Returns the id under which the hold of another program's client is shown, which is stable while its key is unchanged.
-- For a key that is not a string, its serialised value counts, if the user may see that.
local function foreign_id(key, value)
  local dump = value == '?' and redis.pcall('DUMP', key)
  if type(dump) == 'string' then value = dump end
  return string.sub(redis.sha1hex(key .. '\0' .. value), 1, 32)
end

-- Returns the part of a value that names its claim.
local function claim_of(value) return string.match(value, '^[^,]+,') end

-- Returns the number of the attempt that set a value of dlock.
local function attempt_of(value) return tonumber(string.match(value .. '\n', '"attempt":(%d+)}\n')) end

local commands = {}

-- Sets the key, unless another claim has. `proposal` is for the token; `marker` is the value of the lock's key if it has
-- slots. Returns the token, also if the key has the value already, or 0.
function commands.acquire(ttl, proposal, marker)
  local there = value_of(hold)
  if is_own(there) then
    -- A replica that copied the key from its master refuses this.
    redis.call('PEXPIRE', hold, ttl)
    return lines(there)[2]
  end
  -- An attempt replaces an earlier one of its claim. A late request must not: its removal, also late, would follow.
  local is_earlier = there and claim_of(there) == claim_of(own) and attempt_of(there) < attempt_of(own)
  if there and not is_earlier or not mark(marker, ttl) then return 0 end
  local token = text_of(math.max(tonumber(proposal), counter('fence') + 1))
  redis.call('HSET', counters, 'fence', token)
  redis.call('SET', hold, table.concat({ own, token, text_of(now()), '', '' }, '\n'), 'PX', ttl)
  return token
end

-- Renews the hold if the key still has its value. Later tokens are at least as high as its own. Returns whether it did.
function commands.extend(ttl, token, marker)
  local there = value_of(hold)
  if not is_own(there) or not mark(marker, ttl) then return 0 end
  put(hold, there, 2, token)
  redis.call('PEXPIRE', hold, ttl)
  if counter('fence') < tonumber(token) then redis.call('HSET', counters, 'fence', token) end
  return 1
end

-- Returns the client that asks the holder to leave, or nothing; 0 if the key has lost the hold's value.
function commands.look()
  local there = value_of(hold)
  return is_own(there) and lines(there)[5] or 0
end

-- Removes the keys of the attempt, or the claim; after a success it has held for `held_for` microseconds. The last
-- success is that of the run which acquired last. Returns the number of keys.
function commands.release(held_for)
  local all, found = holds(), 0
  for _, each in ipairs(all) do
    if is_own(each.value) then found = found + redis.call('DEL', each.key) end
  end
  -- The lock's key, once no slot is taken.
  if found == #all then redis.call('DEL', lock) end
  local since = now() - (held_for or 0)
  if found > 0 and held_for and last_success() < since then redis.call('HSET', counters, 'success', text_of(since)) end
  return found
end

-- Sets line `n` of the claim's values to `text`. Returns their number.
function commands.note(n, text)
  local found = 0
  for _, each in ipairs(holds()) do
    if is_own(each.value) then
      found = found + 1
      put(each.key, each.value, tonumber(n), text)
    end
  end
  return found
end

-- Removes the hold of another program's client if it is still shown as that id. Returns whether it was.
function commands.evict_foreign(id)
  local value = value_of(lock)
  if not value or foreign_id(lock, value) ~= id then return 0 end
  return redis.call('DEL', lock)
end

-- Reads the holds and changes nothing. Returns for each the slot, its value, the rest of its life, and the id under which
-- it is shown if another program's client set it.
function commands.inspect()
  local shown = {}
  for n, each in ipairs(holds()) do
    shown[n] = { each.slot, each.value, redis.call('PTTL', each.key), foreign_id(each.key, each.value) }
  end
  return shown
end

-- Returns how long ago the last successful run acquired, in microseconds; nothing if that is unknown.
function commands.age()
  local at = last_success()
  return at > 0 and text_of(math.max(now() - at, 0))
end

return commands[ARGV[1]](unpack(ARGV, 5))
