-- Removes the hold of another program's client from the one name, if it is still what the id stands for. Answers whether
-- it was.
local identity = foreign_identity(KEYS[1])
if type(identity) == 'table' then return identity end
if identity ~= id then return 0 end
redis.call('DEL', KEYS[1])
settle(1)
return 1
