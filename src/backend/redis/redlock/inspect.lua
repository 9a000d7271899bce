-- Reads who holds and changes nothing. Keys: the lock's, what is kept beside it. Arguments: what keys of slots, and of what is kept
-- beside them, begin and end with.
local holders = {}
local function read_holder(slot, key, about)
  local value = read(key)
  if not value then return end
  local details = redis.call('HMGET', about, 'since', 'token', 'label')
  local identity = foreign_identity(key)
  if type(identity) ~= 'string' then identity = false end
  holders[#holders + 1] = { slot, value, redis.call('PTTL', key), details[1], details[2], details[3], identity }
end
local slots = slots_of(read(KEYS[1]))
if not slots then read_holder(0, KEYS[1], KEYS[2]) end
for n = 1, slots or 0 do read_holder(n, ARGV[1] .. n .. ARGV[3], ARGV[2] .. n .. ARGV[3]) end
return holders
