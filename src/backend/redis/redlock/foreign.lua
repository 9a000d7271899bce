-- What the hold of another program's client is shown as, if there is one: the same for as long as the key says the same.
-- A key that is no string says what it is made of. False if there is none, and the error if that cannot be told.
local function foreign_identity(lock)
  local value = redis.pcall('GET', lock)
  if type(value) == 'table' then value = redis.pcall('DUMP', lock) end
  if type(value) ~= 'string' then return value end
  return string.sub(redis.sha1hex(lock .. '\0' .. value), 1, 32)
end
