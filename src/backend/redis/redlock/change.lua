-- Does something with what a claim has here; answers how many keys that were. Keys: the lock's, what is kept beside it, the counters.
-- Arguments: how the values of the claim begin; `release`, or a field of what is kept beside the key; whether it was a success, or
-- what the field is to say; and what keys of slots, and of what is kept beside them, begin and end with.
if redis.replicate_commands then redis.replicate_commands() end
local lock, beside, counters = KEYS[1], KEYS[2], KEYS[3]
local own, field, text = ARGV[1], ARGV[2], ARGV[3]
local found = 0

-- The last success is that of the run which acquired last: of those who hold together it may end first. One that is dated more than a
-- minute later than now tells nothing.
local function record_success(since)
  local last, clock = tonumber(redis.call('HGET', counters, 'success') or 0), redis.call('TIME')
  if last < tonumber(since) or last > (clock[1] + 60) * 1000000 + clock[2] then
    redis.call('HSET', counters, 'success', since)
  end
end

local function change(key, about)
  local value = read(key)
  if not value or string.sub(value, 1, #own) ~= own then return end
  found = found + 1
  if field ~= 'release' then
    redis.call('HSET', about, field, text)
    redis.call('PEXPIRE', about, math.max(1, redis.call('PTTL', key)))
    return
  end
  local since = redis.call('HGET', about, 'since')
  redis.call('DEL', key, about)
  if since and text == '1' then record_success(since) end
end

change(lock, beside)
local slots = slots_of(read(lock))
local left = not slots
for n = 1, slots or 0 do
  change(ARGV[4] .. n .. ARGV[6], ARGV[5] .. n .. ARGV[6])
  left = left or redis.call('EXISTS', ARGV[4] .. n .. ARGV[6]) == 1
end
if not left then redis.call('DEL', lock) end
return found
