-- One attempt: sets the key where nothing is in its way. Keys: the lock's; the one to set, which is the lock's or a slot's; what is
-- kept beside that; the counters. Arguments: the value, the ttl, a proposal for the token, the marker that a lock with slots has for
-- all of them or nothing, and what keys of slots begin and end with.
if redis.replicate_commands then redis.replicate_commands() end
local lock, key, about, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local value, ttl, proposal, marker = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local function slot_key(n) return ARGV[5] .. n .. ARGV[6] end

-- What others hold: what the key in the way says, how long it lives, and which slots are free.
local function taken(by, life)
  local free = {}
  local slots = slots_of(read(lock))
  for n = 1, slots or 0 do
    local left = redis.call('PTTL', slot_key(n))
    if left == -2 then
      free[#free + 1] = n
    elseif left >= 0 then
      life = math.min(life, left)
      by = by or read(slot_key(n))
    end
  end
  return { 'taken', by or '?', life, free }
end

local there = read(lock)
if there and there ~= marker and there ~= value then
  -- Who holds slots is told by their own keys.
  return taken(not slots_of(there) and there, redis.call('PTTL', lock))
end
if key ~= lock then
  local other = read(key)
  if other and other ~= value then return taken(other, redis.call('PTTL', key)) end
  if there then keep(lock, ttl) else redis.call('SET', lock, marker, 'PX', ttl) end
end
redis.call('SET', key, value, 'PX', ttl)
local token = string.format('%.0f', math.max(proposal, tonumber(redis.call('HGET', counters, 'fence') or 0) + 1))
redis.call('HSET', counters, 'fence', token)
local time = redis.call('TIME')
redis.call('DEL', about)
redis.call('HSET', about, 'since', string.format('%.0f', time[1] * 1000000 + time[2]), 'token', token)
redis.call('PEXPIRE', about, ttl)
return { 'given', token }
